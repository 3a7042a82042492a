// Package health passes the state of each part of run to other processes: status, and the
// kubelet's probes. Each part writes its own file in the state directory, a tmpfs, and
// removes the file when it ends.
package health

import (
	"context"
	"path/filepath"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

// The parts of run.
const (
	Limits    = "limits"
	Writeback = "writeback"
	Validator = "validator"
	Cluster   = "cluster"
)

// The states of a part that is connected to a runtime, or to the API server.
const (
	// Standby is the state of an instance that waits for the node-wide lock.
	Standby = "standby"
	// Connected means that the runtime sends this instance the events of all containers.
	Connected = "connected"
	// Disconnected means that containers start without a decision of this instance.
	Disconnected = "disconnected"
)

// Report is the state of one part.
type Report struct {
	Part string    `json:"part"`
	At   time.Time `json:"at"` // when the report was written
	// SinceBoot is the time from the node's boot to At. It does not depend on the node's clock, which may
	// jump. It is 0 if it is not known.
	SinceBoot time.Duration `json:"sinceBoot,omitempty"`

	Started time.Time `json:"started"` // when the process started
	PID     int       `json:"pid"`
	Version string    `json:"version"`

	State  string    `json:"state"` // Standby, Connected or Disconnected
	Since  time.Time `json:"since"` // when State began
	Reason string    `json:"reason,omitempty"`
	// Runtime is the name and version of the runtime that was connected last.
	Runtime string `json:"runtime,omitempty"`

	Policy string `json:"policy,omitempty"` // path of the file; "" for the built-in policy
	// PolicyOfRuntime is true if the policy came from the runtime's configuration of a
	// pre-installed plugin. Policy is "" then.
	PolicyOfRuntime bool `json:"policyOfRuntime,omitempty"`
	// PolicyRejected is the reason why the present content of the policy file was rejected, and the former one
	// stays in force; "" if the present one is in force.
	PolicyRejected string `json:"policyRejected,omitempty"`
	Mode           string `json:"mode,omitempty"` // of the policy
	// RuleModes is true if rules of the policy have a mode of their own that counts: --mode
	// replaces them.
	RuleModes bool `json:"ruleModes,omitempty"`
	// Pods counts the annotated pods. NotInForce counts those of them for which writing
	// some limits failed. Failed counts the running containers that do not get all that
	// they request.
	Pods       int `json:"pods"`
	NotInForce int `json:"podsNotInForce"`
	Failed     int `json:"containersFailed"`

	Weights *Weights `json:"weights,omitempty"` // of the limits part
	Budgets *Budgets `json:"budgets,omitempty"` // of the limits part
}

const (
	// Interval is the time between two reports of a part.
	Interval = 2 * time.Second
	// maxAge is the age from which on a report is taken for that of a process that has
	// ended or hangs.
	maxAge = 10 * time.Second
)

// File returns the path of a part's report.
func File(dir, part string) string { return filepath.Join(dir, part+".json") }

// ExchangeDir returns the directory, below the state directory, that the cluster part can write.
func ExchangeDir(stateDir string) string { return filepath.Join(stateDir, Cluster) }

// clusterDir is the directory in the exchange directory with the report of the cluster part.
const clusterDir = "state"

// ClusterDir returns the directory with the report of the cluster part. That part has fewer privileges than the others, so
// its report is not beside theirs. It is not beside the documents either: each change of the exchange directory has its
// reader compare all documents.
func ClusterDir(exchangeDir string) string { return filepath.Join(exchangeDir, clusterDir) }

// Publish writes the result of report to a file, every Interval, until ctx ends. Then it removes the file. It
// writes nothing for an instance on standby, because the file belongs to the active instance. It calls failed
// after each write, with the error or nil.
func Publish(ctx context.Context, file string, report func() Report, failed func(error)) {
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	written := false
	for {
		if r := report(); r.State != Standby {
			r.At, r.SinceBoot = time.Now().UTC(), hostfs.SinceBoot()
			failed(hostfs.WriteJSON(file, &r))
			written = true
		}
		select {
		case <-ctx.Done():
			if written {
				_ = hostfs.Remove(file) // readers recognize an old report by its time
			}
			return
		case <-ticker.C:
		}
	}
}

// Read returns the report of a part, or nil without an error if the part does not run.
func Read(dir, part string) (*Report, error) {
	var r Report
	found, err := hostfs.ReadJSON(File(dir, part), &r)
	return fresh(&r, found, err)
}

// maxCluster bounds the report of the cluster part.
const maxCluster = 64 << 10

// ReadCluster returns the report of the cluster part, as Read does. The report is not trusted: it has what only this part
// can report.
func ReadCluster(exchangeDir string) (*Report, error) {
	var r Report
	found, err := hostfs.ReadJSONBelow(exchangeDir, File(clusterDir, Cluster), maxCluster, &r)
	r.Part, r.PolicyRejected, r.Weights, r.Budgets = Cluster, "", nil, nil
	return fresh(&r, found, err)
}

// fresh returns a report that was read, unless it is too old.
func fresh(r *Report, found bool, err error) (*Report, error) {
	switch {
	case err != nil:
		return nil, err
	case !found || IsOld(r.At, r.SinceBoot):
		return nil, nil
	}
	return r, nil
}

// IsOld reports whether a report is too old to describe the present, from its At and SinceBoot. If SinceBoot is
// set, it decides: after the node's clock is set back, a report would count as new until the clock has caught
// up. A SinceBoot in the future belongs to an earlier boot.
func IsOld(at time.Time, sinceBoot time.Duration) bool {
	if sinceBoot == 0 {
		return time.Since(at) > maxAge
	}
	age := hostfs.SinceBoot() - sinceBoot
	return age > maxAge || age < 0
}
