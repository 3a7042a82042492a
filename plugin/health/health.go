// Package health carries the state of each part of run to other processes:
// status, and the probes of a kubelet. Each part writes a file of its own below
// the state directory, a tmpfs, and removes it when it ends.
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
)

// The states of a part that is connected to a runtime.
const (
	// Standby is the state of an instance that waits for the node-wide lock.
	Standby = "standby"
	// Connected means that the runtime asks this instance about each container.
	Connected = "connected"
	// Disconnected means that containers start without being seen.
	Disconnected = "disconnected"
)

// Report is the state of one part.
type Report struct {
	Part    string    `json:"part"`
	At      time.Time `json:"at"`      // of this report
	Started time.Time `json:"started"` // of the process
	PID     int       `json:"pid"`
	Version string    `json:"version"`

	State  string    `json:"state"` // Standby, Connected or Disconnected
	Since  time.Time `json:"since"` // of State
	Reason string    `json:"reason,omitempty"`
	// Runtime is the name and version of the runtime of the last connection.
	Runtime string `json:"runtime,omitempty"`

	Policy string `json:"policy,omitempty"` // the file; "" for the built-in policy
	Mode   string `json:"mode,omitempty"`   // of the policy
	// Pods have annotations. NotInForce are those of them whose limits could not
	// all be written, and Failed the running containers that did not get all
	// that they ask for.
	Pods       int `json:"pods"`
	NotInForce int `json:"podsNotInForce"`
	Failed     int `json:"containersFailed"`
}

const (
	// Interval is the time between two reports of a part.
	Interval = 2 * time.Second
	// maxAge is the age from which on a report is one of a process that has ended
	// or hangs.
	maxAge = 10 * time.Second
)

// File returns the report's file of a part.
func File(dir, part string) string { return filepath.Join(dir, part+".json") }

// Publish writes what report returns, every Interval, until ctx ends, and removes
// the file then. It writes nothing for an instance on standby: the file is that
// of the active one. Each failure is passed to failed, and nil after a success.
func Publish(ctx context.Context, file string, report func() Report, failed func(error)) {
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	written := false
	for {
		if r := report(); r.State != Standby {
			r.At = time.Now().UTC()
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

// Read returns the report of a part; nil without an error if the part does not
// run.
func Read(dir, part string) (*Report, error) {
	var r Report
	switch found, err := hostfs.ReadJSON(File(dir, part), &r); {
	case err != nil:
		return nil, err
	case !found || IsOld(r.At):
		return nil, nil
	}
	return &r, nil
}

// IsOld reports whether a report of this time says nothing about now.
func IsOld(at time.Time) bool { return time.Since(at) > maxAge }
