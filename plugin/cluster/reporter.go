package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

const (
	// reportPace is the shortest time between two requests with the report, and between two looks at it. Failed requests, and the
	// first ones of all nodes, are spread over as much time.
	reportPace = 10 * time.Second
	// reportPatience is the age from which on the limits part is taken for one that does not run.
	reportPatience = 2 * nodereport.Interval
)

// sendReports sends the report that the limits part has written, on change and about every minute, until the context ends.
func (p *Part) sendReports(ctx context.Context) {
	var (
		sent    []byte
		next    time.Time // when an unchanged report is sent again
		problem reminder.Reminder
	)
	reminder.Sleep(ctx, rand.N(reportPace))
	reminder.Every(ctx, reportPace, func(now time.Time) {
		report := p.readReport(now)
		if answers, _, _ := p.contact.state(); !answers || bytes.Equal(report, sent) && now.Before(next) {
			return
		}
		err := p.API.ApplyReport(ctx, now, report)
		if ctx.Err() != nil {
			return
		}
		p.status.count(err)
		if problem.Due(now, err) {
			p.Log.WithError(err).Warn("Sending the report about the node failed, retrying")
		}
		if err == nil {
			sent, next = report, now.Add(nodereport.Interval-reportPace)
		} else {
			reminder.Sleep(ctx, rand.N(reportPace))
		}
	})
}

// readReport returns the report that the limits part has written, or why there is none.
func (p *Part) readReport(now time.Time) []byte {
	version, err := hostfs.VersionOf(filepath.Join(p.EventsDir, nodereport.FileName))
	var data []byte
	if err == nil {
		data, err = hostfs.ReadSharedBelow(p.EventsDir, nodereport.FileName, nodereport.MaxSize)
	}
	text := "the limits part does not run, or without --events-dir: its report is old"
	if err != nil {
		text = "the limits part does not run, or without --events-dir: " + err.Error()
	} else if now.Sub(version.Changed).Abs() < reportPatience {
		return data
	}
	return nodereport.Encode("", 0, []nodereport.Problem{{Reason: nodereport.NotRunning, Text: text}})
}

// ApplyReport implements API. The object is a Lease: it needs no definition of a kind, it has a field for the time, and the
// part needs no right to other objects of the plugin's namespace, such as the ConfigMap of the policy.
func (c *client) ApplyReport(ctx context.Context, now time.Time, report []byte) error {
	token, err := hostfs.Root(c.tokenDir).ReadFile("token")
	if err != nil {
		return err
	}
	of, err := holderOf(string(token))
	if err != nil {
		return err
	}
	body, err := json.Marshal(newLease(of, now, report))
	if err != nil { // not reached
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return c.leases.Patch(types.ApplyPatchType).Namespace(of.Namespace).Resource("leases").Name(nodereport.NamePrefix+of.Node.Name).
		Param("fieldManager", reportingController).Param("force", "true").Body(body).Do(ctx).Error()
}

// holder is the pod to which the token of a service account is bound.
type holder struct {
	Namespace string
	Node      struct{ Name, UID string }
}

// holderOf reads the claims of a token, which the API server has signed for itself. Nothing is decided by them: the API server
// compares the node's name with the token (cluster-rbac.yaml).
//
// Source: privateClaims in Kubernetes' pkg/serviceaccount/claims.go.
func holderOf(token string) (holder, error) {
	var claims struct {
		Kubernetes holder `json:"kubernetes.io"`
	}
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return holder{}, errors.New("the token is no JSON Web Token")
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(data, &claims)
	}
	if err != nil {
		return holder{}, fmt.Errorf("read the claims of the token: %w", err)
	}
	if of := claims.Kubernetes; of.Namespace != "" && of.Node.Name != "" && of.Node.UID != "" {
		return of, nil
	}
	return holder{}, errors.New("the token names no node (Kubernetes 1.30 or later has it in those of pods)")
}

// newLease returns the object with a report. It is removed with the node.
func newLease(of holder, now time.Time, report []byte) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: nodereport.NamePrefix + of.Node.Name,
			Labels:          map[string]string{"app.kubernetes.io/name": nodereport.Name},
			Annotations:     map[string]string{nodereport.Annotation: string(report)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: of.Node.Name, UID: types.UID(of.Node.UID)}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &of.Node.Name, RenewTime: &metav1.MicroTime{Time: now},
			LeaseDurationSeconds: new(int32(nodereport.MaxAge.Seconds())),
		},
	}
}
