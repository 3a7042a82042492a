package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/node/metrics"
	"github.com/nri-blkio/nri-blkio/plugin/node/notice"
	"github.com/nri-blkio/nri-blkio/plugin/node/queue"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/budget"
)

// This file has what a Node consists of, and the state: groups of pods, their pods, and indexes of both.

// Storage finds the disks of the node. It is a *storage.Storage.
type Storage interface {
	inventory.Storage
	handover.Storage
}

// The work on one group of pods is bounded by a thousand times its normal duration. A call can hang in the
// kernel on a disk that fails, and the other groups must not wait for it.
const (
	passDeadline    = time.Second
	resolveDeadline = 5 * time.Second // resolving may read a mount table that has changed
	maxReconciled   = 4               // groups that are reconciled at the same time, without those that take longer than patientFor
	// patientFor is the time after which the work on a group goes on beside that on maxReconciled other groups.
	patientFor = 20 * time.Millisecond
)

// Node holds the state of one node: its pods, their requests, and the limits that they
// should have. Its methods are safe for concurrent use.
type Node struct {
	environment
	wake     chan struct{}            // the queue of groups has changed
	all      chan struct{}            // a pass over all pods is due
	told     notice.Ledger[noticeKey] // of the node as a whole; used by the reconciler only
	shared   atomic.Pointer[sharedReads]
	state    *guard.Value[state]
	isListed atomic.Bool // the runtime has listed the running containers: before that, the plugin does not know all of them
	policy   atomic.Pointer[policy.Policy]
	layers   *layers.Locator
	inFlight inFlight
	exits    exits
	metrics  *metrics.Counters
}

// environment has the parts of a Node that do not change.
type environment struct {
	log        logrus.FieldLogger
	storage    Storage
	cgroups    *cgroupfs.Hierarchy
	kernel     kernel.Verdict
	kubelet    string // its root directory
	resync     time.Duration
	nodeMemory uint64 // 0 where it is unknown
	controls   *enforce.Controls
	recovery   *recovery.Recovery
	// processMounts and events may be nil.
	processMounts func(ctx context.Context, pid int, cgroup string) ([]blkio.ProcessMount, error)
	events        Events
}

// inFlight holds the calls that have not returned. They can hang in the kernel.
type inFlight struct {
	calls  bounded.Calls // of the runtime's events
	passes bounded.Calls // of the reconciler
}

// exits has the parts that hand over the data of containers that end.
type exits struct {
	ends     handover.Exits
	writeout handover.Writeout
	tidier   handover.Tidier
}

// sharedReads has what is read once for all containers of a pass.
type sharedReads struct {
	stacks   *inventory.Stacks
	counters *inventory.Counters
}

// state holds the pods of the node. A Node keeps it behind a lock, and holds that for a short time: what has the lock neither logs,
// nor reads or writes anything on the node. The methods of state, group and pod are called with the lock.
type state struct {
	pods map[string]*pod // by sandbox ID
	// groups has the same pods by their pod cgroup, see groupKey.
	groups map[string]*group
	indexes
	// live has what the API server knows about pods now, by their UID. The pods may not be here yet. The values do not change.
	live map[string]live
	// written has what this process wrote to the cgroups of groups that have left, until the cgroups are removed: a later sandbox may
	// be in one of them, and the record may not have been stored.
	written map[string]enforce.Written
	// namespaceKeys are the keys of the labels of namespaces that requests keep, nil for none.
	namespaceKeys []string
	arrivals      int // pods and containers that became part of the state
	unexpected    int // events that the lifecycle of a container has no transition for
	// unreadable is an error of reading the records of pods that nothing concerns since the last pass began; nil for none.
	unreadable error
	// queue has the groups that the reconciler has to compare with their cgroups. A token in wake makes it look at the
	// queue.
	queue queue.Queue[groupIdentity]
	wake  chan struct{}
	// watch watches the ends of containers. It is nil before Run, and while the watch cannot be set up.
	watch handover.Adder
}

// group has the sandboxes of one pod cgroup. There is one sandbox, or two for a while when the kubelet makes a
// new one for a pod.
type group struct {
	groupFacts
	pods    []*pod // in the order of their arrival
	concern concern

	entry    queue.Entry[groupIdentity]
	drain    lifecycle.Drain
	plan     *planned // nil after a change
	changes  int      // number of changes; a plan is kept only if this is the same as when the plan began
	retry    retry
	recorded recorded
	foreign  string // limits of other programs in io.max of the pod's cgroup, as they were last read; "" for none
	told     notice.Ledger[noticeKey]
}

// concern is whether something concerns the pods of a group: the policy, annotations, the API server, or a record on their cgroups. While
// nothing does, it is what is known about the records.
type concern uint8

// The values of concern. Up to unrecorded, nothing concerns the pods.
const (
	unread     concern = iota // the records are to be read soon
	unreadable                // the next pass reads them again
	unrecorded                // the cgroups have none
	concerned
	recordRead // and the record of the pod that an earlier process left was read into group.recorded
)

// planned is the plan of a group. Once nothing else is to be done for the group, a pass only compares the plan with the cgroups, and the
// disks that containers use with those that they declare. That holds for one policy and one place of the writable layers.
type planned struct {
	*enforce.Targets
	policy   *policy.Policy // nil before nothing else was to be done
	layers   *layers.Locations
	covering []*container // to whose undeclared disks a "*" applies
}

// groupIdentity refers to the facts about a group that never change. Two are equal if they are of the same group.
type groupIdentity struct{ *groupFacts }

// groupFacts are what a groupIdentity refers to.
type groupFacts struct {
	ref    guard.Ref[state, group]
	cgroup string // below the cgroup root; "" where the runtime named none
	key    string // name of the group; no other group has it at the same time
	// token is held by the writer, so that two writers cannot interleave and leave the older values: a write to a dying disk can hang.
	token *bounded.Token
	// written has what this process wrote to the group's cgroups. Only the holder of the token uses it.
	written *enforce.Written
}

// in returns the group. It may not be part of the state any more.
func (g groupIdentity) in(s *state) *group { return g.ref.In(s) }

func (g *group) identity() groupIdentity { return groupIdentity{&g.groupFacts} }

// nothing is what was granted to a pod as a whole before its first plan.
var nothing = &policy.Desired{}

// retry has the error of a group whose limits are not all in force, and the pause before the next try.
type retry struct {
	err   error         // nil if all limits are in force
	pause time.Duration // until the next try, 0 without a failure
}

// recorded has the values that the next record of the pod takes over from earlier ones.
type recorded struct {
	exits   []record.Exit   // of containers that have ended
	granted *policy.Desired // to the pod as a whole, by its last plan; never nil, and the value does not change
	limits  policy.Settings // of the pod as a whole, by the record of an earlier process: see recalled
	cleared map[string]bool // the cgroups of the pod that are marked as cleared
	weights policy.Settings // of the pod as a whole, on all disks and on single disks
}

// pod is one sandbox.
type pod struct {
	podIdentity
	arrival    int          // a later sandbox replaces an earlier one
	joined     time.Time    // when it became a part of the state
	containers []*container // in the order of their names and IDs
	// known has the facts of all containers created so far, by name. It includes containers that were rejected
	// or removed.
	known map[string]knownFacts
	// total are the limits of the pod as a whole, with the containers that were accepted so far. They count for the budget.
	total policy.Settings
	// complete is the request for which a pass has found that all containers are decided and one runs: containers are created one by
	// one. It is nil before.
	complete *podfacts.Request
	edit     edit
	// trying is the edit that is being tried, nil if none is.
	trying *podfacts.Request
	// isNew is true for a sandbox that an event has reported first: all its containers are known.
	isNew bool
	// restored is true after the record of the pod was read for an edit that an earlier process took over.
	restored bool
	pace     queue.Pace
}

// podIdentity refers to the facts about a sandbox that never change once it is part of the state. Two are equal if they are of the
// same sandbox. The zero value is the identity of no pod.
type podIdentity struct{ *fixedFacts }

// fixedFacts are what a podIdentity refers to.
type fixedFacts struct {
	ref                      guard.Ref[state, pod] // set with the group when the pod becomes part of the state
	id, namespace, name, uid string
	request                  podRequest
	lent                     atomic.Pointer[policy.Lent] // to the pod, see borrow; nil for nothing
	borrows                  queue.Pace                  // of changes of lent; used with the lock
	group                    groupIdentity
}

// isNone reports whether this is the identity of no pod.
func (p podIdentity) isNone() bool { return p.fixedFacts == nil }

// in returns the pod. It may not be part of the state any more.
func (p podIdentity) in(s *state) *pod { return p.ref.In(s) }

// knownFacts has the facts of the newest container of a name.
type knownFacts struct {
	facts   policy.Container
	size    int // in bytes, of the mounts in the OCI spec
	arrival int
	// isRejected is true if the newest one was rejected. The facts are those of an accepted one before it, if there was one.
	isRejected bool
}

func (p *podIdentity) String() string { return p.namespace + "/" + p.name }

// asks reports whether a request is still the one of the pod that counts.
func (p *podIdentity) asks(r *podfacts.Request) bool { return p.request.now.Load() == r }

// index has parts of the state by a name. Several of them may have the same one.
type index[V comparable] map[string][]V

// indexes has parts of the state by facts about them that never change.
type indexes struct {
	namespaces map[string]*namespace
	byCgroup   index[*container] // without those whose cgroup is not known
	byUID      index[*pod]
	byOwner    index[string] // the UIDs of the pods in live that another pod controls, by the UID of that
}

// podRequest holds what is requested for a pod, and counts. Only a live change replaces it.
type podRequest struct {
	now atomic.Pointer[podfacts.Request]
}

// live is what the API server knows now about a pod.
type live struct {
	*podfacts.Request // without the labels of the namespace
	name              string
	owner             podfacts.Owner // the object that controls it, the zero value for none
	// namespaceLabels are all labels of its namespace. They are nil if they are unknown.
	namespaceLabels map[string]string
	// err is why the annotations are unknown. It is nil if they are known, or not read yet.
	err error
}

// edit is a live change of a pod that does not count yet.
type edit struct {
	next *podfacts.Request // nil for none
	err  error             // the reason why it is rejected; nil before the first try
	// unknown is the reason why the pod may have an edit that is not known; nil if it has none.
	unknown error
}

// rejectedEdit is the error of a pod with an edit that does not count.
type rejectedEdit struct {
	parts podfacts.Parts
	cause error
}

func (e *rejectedEdit) Error() string {
	if !e.parts.Has(podfacts.Annotations | podfacts.Labels) {
		return fmt.Sprintf("the limits of a claim were changed, and those before stay in force: %v", e.cause)
	}
	return fmt.Sprintf("the %s were edited, and those before stay in force: %v", e.parts, e.cause)
}

func (e *rejectedEdit) Unwrap() error { return e.cause }

// partsOf returns the parts of an edit that an error rejects.
func partsOf(err error) podfacts.Parts {
	if r, ok := errors.AsType[*rejectedEdit](err); ok {
		return r.parts
	}
	return podfacts.Annotations
}

// text returns why the edit is rejected, in text that a tenant may see.
func (e *edit) text() string {
	if e.next == nil {
		return e.err.Error()
	}
	return (&rejectedEdit{partsOf(e.err), errors.New(cause.Of(e.err).Text)}).Error()
}

// besideAnnotations are the parts of an edit that can have other authors than the annotations.
const besideAnnotations = podfacts.Labels | podfacts.Volumes

// Events receives what happens to pods. A note has text of its pod only.
type Events interface {
	// Note notes that something has happened to a pod. The key is the same if it happens again. Note waits for nothing.
	Note(of podevent.Pod, reason podevent.Reason, key podevent.Key, note string)
	// Run keeps what was noted until ctx ends. present returns the UIDs of the node's pods, and nil while they are not known.
	Run(ctx context.Context, present func() map[string]bool)
}

// note passes events on.
func (n *Node) note(events ...notice.Event) {
	for _, e := range events {
		if n.events != nil {
			n.events.Note(e.Of, e.Reason, e.Key, e.Note)
		}
	}
}

func (p *podIdentity) named() podevent.Pod {
	return podevent.Pod{UID: p.uid, Namespace: p.namespace, Name: p.name}
}

// namespace has the pods of a namespace that are part of the state.
type namespace struct {
	pods map[string]*pod      // by sandbox ID
	sums *budget.Sums[*group] // nil until its budget is first asked, and without a budget
}

// noticeKey identifies a notice for programs. Of its parts those are set that tell apart two notices of a kind.
type noticeKey struct {
	kind      noticeKind
	pod       guard.Ref[state, pod]
	container containerRef
	policy    *policy.Pod
	request   *podfacts.Request
	settings  int
	cause     cause.Key
	parts     podfacts.Parts // of an edit
	subject   string         // a mount
}

// noticeKind is what a notice is about.
type noticeKind uint8

// The kinds of notices.
const (
	wouldGet noticeKind = iota // a decision in mode observe
	noMemoryLimit
	notWritten   // limits could not be decided or written
	notGranted   // a part of what is asked for
	keepsGranted // as notGranted, and limits that were granted before stay
	changeRejected
	retried     // as notWritten, for all pods of the group, and at once
	notEnforced // as notGranted, for a container, and at once
	claimIgnored
	undeclaredUnknown
	diskUnresolved
	processUnknown
	diskAdded
	targetsUnmatched
	foreignLimits
	limitsMissing
	recordsUnread
	layersUnknown
	layersElsewhere
	labelsUnknown
)
