package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/budget"
)

// sumModel is the runtime of a node, and what follows for the sums: the pods that it has, and the containers that have
// not ended as far as the plugin can know.
type sumModel struct {
	*budgetNode
	rng    *rand.Rand
	pods   map[string]*sumPod
	budget blkio.Amount // 0 for none
	ids    int
	log    []string
}

func (m *sumModel) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

// fits reports whether the budget has room for one more container of a pod.
func (m *sumModel) fits(pod, name string) bool {
	if m.budget == 0 {
		return true
	}
	p := m.pods[pod]
	before, after := p.of(name, 0), p.of(name, 1)
	for disk := range before {
		if p.kind.own[disk] == blkio.Max && p.kind.bound[disk] == blkio.Max {
			return false
		}
		sum := after[disk]
		for other, o := range m.pods {
			if other != pod {
				sum = budget.Plus(sum, o.of("", 0)[disk])
			}
		}
		if after[disk] > before[disk] && sum > m.budget {
			return false
		}
	}
	return true
}

// policyText is the policy with the current budget.
func (m *sumModel) policyText() string {
	if m.budget == 0 {
		return ""
	}
	return fmt.Sprintf("budgets: [{namespaces: ['tenant-*'], limits: ['* wbps=%d']}]\n", m.budget)
}

// check compares what the plugin reports with the sums, when all is decided.
func (m *sumModel) check() error {
	for _, u := range m.Budgets() {
		if u.Undecided > 0 || u.Budget != m.budget || u.IsOver() != (u.Granted > m.budget) {
			return fmt.Errorf("%+v", u)
		}
	}
	return m.compare()
}

// checkRecorded compares the sums by the records of pods that are not decided yet.
func (m *sumModel) checkRecorded() error {
	if b := m.policy.Load().BudgetFor("tenant-a"); b != nil {
		for _, c := range m.unread("tenant-a", b) {
			err := cmp.Or(m.recall(c.pod.group), m.recallContainer(&c))
			if err != nil {
				return err
			}
			m.noteGranted(&c, m.lowest(m.knownLimits(&c)))
		}
	}
	return m.compare()
}

// compare compares the amounts that the plugin reports with the sums.
func (m *sumModel) compare() error {
	want, got := map[string]blkio.Amount{}, map[string]blkio.Amount{}
	for _, p := range m.pods {
		for disk, amount := range p.of("", 0) {
			name := []string{"vda", "vdb"}[disk]
			if want[name] = budget.Plus(want[name], amount); want[name] == 0 || m.budget == 0 {
				delete(want, name)
			}
		}
	}
	for _, u := range m.Budgets() {
		name := map[blkio.Dev]string{rootDisk.Dev: "vda", dataDisk.Dev: "vdb"}[u.Disk.Dev] // of undecided pods only the device is known
		got[name] = u.Granted
	}
	if !maps.Equal(want, got) {
		return fmt.Errorf("granted %v, want %v", got, want)
	}
	return nil
}

// TestBudgetSums verifies after each of many random events that the sums are those of a naive model, and that a container is
// refused exactly if its pod's part would grow beyond the budget: with containers that are refused, given up, restarted, or end without
// an event, with replaced sandboxes, restarts of the plugin, and new policies.
func TestBudgetSums(t *testing.T) {
	events := 500
	if testing.Short() {
		events = 100
	}
	for seed := range uint64(8) {
		m := &sumModel{budgetNode: newBudgetNode(t, ""), rng: rand.New(rand.NewPCG(seed, 1)), pods: map[string]*sumPod{}, budget: 200 << 20}
		m.Reload(rules(t, m.policyText()))
		for range events {
			err := m.event()
			if err == nil {
				err = cmp.Or(m.checkSums(), m.check())
			}
			if err != nil {
				t.Fatalf("seed %d: %v after\n%s", seed, err, strings.Join(m.log[max(0, len(m.log)-30):], "\n"))
			}
		}
		if m.peek().unexpected != 0 {
			t.Errorf("seed %d: %d unexpected events", seed, m.peek().unexpected)
		}
	}
}

func (m *sumModel) event() error {
	name := string(rune('p' + m.rng.IntN(5)))
	p := m.pods[name]
	if p == nil {
		p = m.addPod(name)
	}
	switch n := m.rng.IntN(100); {
	case n < 45:
		return m.create(name, p)
	case n < 65:
		if c := m.pick(p); c != nil {
			m.end(c, m.rng.IntN(3) > 0)
		}
	case n < 75:
		m.remove(p)
	case n < 81:
		m.replaceSandbox(name, p)
	case n < 88:
		m.removePod(name, p)
	case n < 92:
		m.note("pass")
		m.pass(m.t.Context())
	case n < 95:
		m.reload()
	default:
		m.synchronize(n < 98)
	}
	return nil
}

func (m *sumModel) addPod(name string) *sumPod {
	kinds := wantedKinds()
	p := &sumPod{kind: kinds[m.rng.IntN(len(kinds))]}
	m.pods[name] = p
	m.ids++
	m.addSandbox(name, p, fmt.Sprintf("u%s%d", name, m.ids))
	m.note("pod %s: %q, %q", name, p.kind.each, p.kind.total)
	return p
}

func (m *sumModel) addSandbox(name string, p *sumPod, uid string) {
	m.ids++
	sb := tenant(name+uid, p.kind.each)
	sb.ID, sb.UID = fmt.Sprintf("sb-%s-%d", name, m.ids), uid
	if p.kind.total != "" {
		if sb.Annotations == nil {
			sb.Annotations = map[string]string{}
		}
		sb.Annotations[limitsKey+"pod-total"] = p.kind.total
	}
	makeCgroup(m.t, m.dir, sb.Cgroup)
	p.sandboxes = append(p.sandboxes, sb)
}

// create creates a container of the current sandbox, and mostly starts it.
func (m *sumModel) create(pod string, p *sumPod) error {
	name, mount := []string{"x", "y", "z"}[m.rng.IntN(3)], "/data"
	sb := p.sandboxes[len(p.sandboxes)-1]
	begins := p.kind.init && p.begun != sb
	if begins {
		name, mount = "init", "/init"
	}
	if slices.ContainsFunc(p.containers, func(c *sumContainer) bool { return c.Name == name && !c.ended }) {
		return nil
	}
	m.ids++
	source := "/mnt/data/x"
	if p.kind.volume {
		source = "/mnt/lv1/x"
	}
	c := &sumContainer{Container: member(sb, name, bind(source, mount)), sb: sb}
	c.ID += fmt.Sprint(m.ids)
	c.Cgroup += fmt.Sprint(m.ids)
	if m.rng.IntN(12) == 0 {
		m.note("%s: the runtime gives up the creation of %s", pod, c.ID)
		ctx, cancel := context.WithCancel(m.t.Context())
		cancel()
		_, _, _ = m.Create(ctx, sb, c.Container, false)
		m.inFlight.calls.Wait(passDeadline)
		return nil
	}
	m.silent = m.rng.IntN(2) == 0
	fits := m.fits(pod, name)
	err := m.createOf(sb, c.Container)
	m.note("%s: create %s: %v", pod, c.ID, err)
	if fits != (err == nil) {
		return fmt.Errorf("create: %w, want room: %t", err, fits)
	}
	for _, o := range p.containers { // also if it is refused
		o.told = o.told || o.Name == name
	}
	if err != nil {
		return nil
	}
	c.State = Created
	p.containers = append(p.containers, c)
	if !begins && m.rng.IntN(4) == 0 {
		return nil
	}
	m.note("%s: start %s", pod, c.ID)
	c.State = Running
	err = m.startOf(sb, c.Container)
	if begins {
		p.begun = sb
		m.end(c, true)
	}
	return err
}

// pick returns a container that has not ended, or nil.
func (m *sumModel) pick(p *sumPod) *sumContainer {
	var live []*sumContainer
	for _, c := range p.containers {
		if !c.ended {
			live = append(live, c)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return live[m.rng.IntN(len(live))]
}

// end ends a container, with an event or without.
func (m *sumModel) end(c *sumContainer, told bool) {
	m.note("end %s, told %t", c.ID, told)
	c.ended = true
	if c.State == Running {
		write(m.t, filepath.Join(m.dir, m.cgroupOf(c.sb, c.Container), "cgroup.events"), "populated 0\nfrozen 0\n")
	}
	if told {
		c.told = true
		for range 1 + m.rng.IntN(2) {
			m.Stopped(c.sb.ID, c.ID)
		}
	}
}

// remove removes the containers of a pod that have ended.
func (m *sumModel) remove(p *sumPod) {
	for _, c := range p.containers {
		if c.ended {
			c.told = true
			m.note("remove %s", c.ID)
			m.Removed(c.sb.ID, c.ID)
		}
	}
	p.containers = slices.DeleteFunc(p.containers, func(c *sumContainer) bool { return c.ended })
}

// replaceSandbox makes the next sandbox of a pod. The old ones are removed now or later.
func (m *sumModel) replaceSandbox(name string, p *sumPod) {
	for _, c := range p.containers {
		if !c.ended {
			m.end(c, m.rng.IntN(2) == 0)
		}
	}
	old := p.sandboxes[len(p.sandboxes)-1]
	m.addSandbox(name, p, old.UID)
	m.note("%s: sandbox %s", name, p.sandboxes[len(p.sandboxes)-1].ID)
	p.sandboxes[len(p.sandboxes)-1].Cgroup = old.Cgroup
	if m.rng.IntN(2) == 0 {
		m.dropSandboxes(p, p.sandboxes[:len(p.sandboxes)-1])
		p.sandboxes = p.sandboxes[len(p.sandboxes)-1:]
	}
}

func (m *sumModel) dropSandboxes(p *sumPod, old []*Sandbox) {
	for _, sb := range old {
		m.note("remove sandbox %s", sb.ID)
		m.RemovedPod(sb.ID)
		p.containers = slices.DeleteFunc(p.containers, func(c *sumContainer) bool { return c.sb == sb })
	}
}

func (m *sumModel) removePod(name string, p *sumPod) {
	m.dropSandboxes(p, p.sandboxes)
	if err := os.RemoveAll(filepath.Join(m.dir, strings.TrimPrefix(p.sandboxes[0].Cgroup, "/"))); err != nil {
		m.t.Fatal(err)
	}
	delete(m.pods, name)
}

// reload puts another budget into force. What is unknown of the containers that run is found with the next pass.
func (m *sumModel) reload() {
	before := m.budget
	m.budget = []blkio.Amount{0, 100 << 20, 200 << 20, 200 << 20, 400 << 20}[m.rng.IntN(5)]
	m.note("budget %v", m.budget)
	m.Reload(rules(m.t, m.policyText()))
	if before == 0 || m.rng.IntN(2) == 0 {
		m.pass(m.t.Context())
	}
}

// synchronize is a new connection with the runtime, or a new process of the plugin, which may be asked for a container before
// it has decided anything.
func (m *sumModel) synchronize(restart bool) {
	var sandboxes []*Sandbox
	var containers []*Container
	allRun := m.budget != 0
	startAll := m.rng.IntN(2) == 0
	if restart && slices.ContainsFunc(m.Budgets(), func(u BudgetUse) bool { return u.IsOver() }) {
		startAll = true // a new process asks the budget about those that have not started, see lower-budget-before-start.txt
	}
	for _, p := range m.pods {
		if startAll {
			m.start(p)
		}
		sandboxes = append(sandboxes, p.sandboxes...)
		p.containers = slices.DeleteFunc(p.containers, func(c *sumContainer) bool { return c.ended })
		for _, c := range p.containers {
			containers = append(containers, c.Container)
			allRun = allRun && c.State == Running && (p.kind.own[1] != blkio.Max || p.kind.bound[1] != blkio.Max)
		}
	}
	m.note("synchronize, restart %t", restart)
	if restart {
		m.restart(m.policyText())
	}
	m.Synchronize(sandboxes, containers)
	if name := string(rune('p' + m.rng.IntN(5))); restart && allRun && m.pods[name] != nil {
		if err := cmp.Or(m.create(name, m.pods[name]), m.checkRecorded()); err != nil {
			m.t.Errorf("before the first pass: %v\n%s", err, strings.Join(m.log[max(0, len(m.log)-30):], "\n"))
		}
	}
	m.pass(m.t.Context())
}

// start starts the containers of a pod that were created and have not started. Their creation may be one that a former process of
// the plugin has checked, by a former budget: then the start is checked as well.
func (m *sumModel) start(p *sumPod) {
	for _, c := range p.containers {
		if c.State != Created || c.ended {
			continue
		}
		c.State = Running
		err := m.startOf(c.sb, c.Container)
		if m.note("start %s late: %v", c.ID, err); err != nil {
			m.end(c, true)
		}
	}
}
