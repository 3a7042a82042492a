package node

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// claimsOf returns the claim "data" of the containers a and b, with this annotation, "" for none.
func claimsOf(text string) *policy.Claims {
	v := policy.ClaimVolume{Claim: "data", Places: []policy.Place{{Container: "a", Path: "/data"}, {Container: "b", Path: "/data"}}}
	if text != "" {
		v.Limits = &text
	}
	return policy.NewClaims([]policy.ClaimVolume{v})
}

// claim has the API server know these claims, and annotations as KEY, VALUE...
func (l *liveNode) claim(claims *policy.Claims, pairs ...string) {
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(pairs...), Claims: claims})
	l.pass(l.t.Context())
}

// wantData compares wbps on the disk of the claim, of both containers and of their pod.
func (l *liveNode) wantData(when string, want map[string]blkio.Amount) {
	l.t.Helper()
	for cgroup, rate := range want {
		if got := finite(l.k.has(cgroup)[dataDisk.Dev])[blkio.Wbps]; got != rate {
			l.t.Errorf("%s: %s has wbps %v, want %v", when, cgroup, got, rate)
		}
	}
}

// TestLiveClaims verifies that limits of a claim apply to a pod without annotations while it runs, that each container has them,
// and that the values are raised first at the pod and lowered last.
func TestLiveClaims(t *testing.T) {
	l := newLiveNode(t)
	l.run(sandbox(nil), "a", "b")
	l.claim(claimsOf(""))
	if n := len(l.peek().pods); n != 0 {
		t.Errorf("a claim without limits makes %d pods known", n)
	}
	l.claim(claimsOf("wbps=2Mi"))
	l.wantData("added", all(2*mi, 2*mi))
	if r := recordOf(t, l.Node, cgroupOf("a")); r == nil || len(r.Settings) != 1 || r.Settings[0].Source.String() != "claim data" {
		t.Errorf("the record is %+v", r)
	}
	l.writes = nil
	l.claim(claimsOf("wbps=8Mi"))
	l.wantData("raised", all(8*mi, 8*mi))
	if first := l.writes[0]; !strings.HasPrefix(first, "kubepods-pod1.slice") {
		t.Errorf("the limit of the pod is raised after %q", first)
	}
	l.writes = nil
	l.claim(claimsOf("wbps=1Mi"))
	l.wantData("lowered", all(mi, mi))
	if last := l.writes[len(l.writes)-1]; !strings.HasPrefix(last, "kubepods-pod1.slice") {
		t.Errorf("the limit of the pod is lowered before %q", last)
	}
	l.claim(claimsOf("wbps=1Mi"), limitsKey+"container.a", "pvc:data wbps=3Mi")
	l.wantData("an annotation beats it", all(3*mi, mi))
	l.claim(claimsOf("wbps=1Mi"))
	l.claim(claimsOf(""))
	l.wantData("removed", all(0, 0))
}

// TestWrongClaim verifies that wrong limits of a claim leave those before in force, reject no container, and are in the record,
// the log and a metric.
func TestWrongClaim(t *testing.T) {
	l := newLiveNode(t)
	sb := sandbox(nil)
	l.run(sb, "a", "b")
	l.claim(claimsOf("wbps=2Mi"))
	for range 2 {
		l.claim(claimsOf("wpbs=9Mi"))
		l.wantData("wrong", all(2*mi, 2*mi))
	}
	r := recordOf(t, l.Node, cgroupOf("a"))
	if text := strings.Join(r.Warnings, "\n"); !strings.Contains(text, `"claim data": "wpbs=9Mi": unknown key "wpbs"`) || r.Error != "" {
		t.Errorf("the record has the warnings %q, and the error %q", text, r.Error)
	}
	logged := 0
	for _, e := range l.logged.AllEntries() {
		if e.Message == "Limits of a claim do not count" {
			logged++
		}
	}
	if got := scrape(t, l.Node)["warnings{claim_not_enforced}"]; got != 2 || logged != 2 { // once for each container
		t.Errorf("%v containers are counted, %d lines are logged", got, logged)
	}
	l.restart(policy.Default())
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Claims: claimsOf("wpbs=9Mi")})
	l.list(sb, "a", "b")
	l.wantData("restarted", all(2*mi, 2*mi))
	l.Stopped("sb1", "id-b")
	l.Removed("sb1", "id-b")
	l.run(sb, "b")
	l.wantData("a new container", map[string]blkio.Amount{cgroupOf("a"): 2 * mi, cgroupOf("b"): 0})
	l.claim(claimsOf("wbps=4Mi"))
	l.wantData("corrected", all(4*mi, 4*mi))
}

// TestClaimsAway verifies that limits of claims stay in force while the claims are unknown, also when the plugin or a container
// restarts, and that they are removed once the API server reports that the claims have none.
func TestClaimsAway(t *testing.T) {
	for name, sb := range map[string]*Sandbox{"bystander": sandbox(nil), "annotated": sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=5Mi"))} {
		t.Run(name, func(t *testing.T) {
			l := newLiveNode(t)
			l.run(sb, "a", "b")
			l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: sb.Annotations, Claims: claimsOf("wbps=2Mi")})
			l.pass(t.Context())
			l.wantData("at first", all(2*mi, 2*mi))
			away := func(when string) {
				t.Helper()
				for range 2 {
					l.pass(t.Context())
					l.pass(t.Context())
					l.wantData(when, all(2*mi, 2*mi))
				}
			}
			l.SetLive("u1", nil)
			away("no document")
			l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: sb.Annotations, Claims: policy.UnknownClaims("129 of them")})
			away("omitted")
			l.restart(policy.Default())
			l.writes = nil
			l.list(sb, "a", "b")
			away("restarted without a document")
			if len(l.writes) > 0 {
				t.Errorf("the restart wrote %q", l.writes)
			}
			l.restart(policy.Default())
			l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: sb.Annotations, Claims: claimsOf("wbps=2Mi")})
			l.list(sb, "a", "b")
			away("restarted with the document")
			l.restart(policy.Default())
			l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: sb.Annotations, Claims: claimsOf("")})
			l.list(sb, "a", "b")
			l.wantData("removed meanwhile", all(0, 0))
		})
	}
}

// TestClassOfUnknownClaim verifies that a limit that a class sets on a claim stays in force while the claims are unknown, which
// annotations can cause, but not after the class is another one.
func TestClassOfUnknownClaim(t *testing.T) {
	const shared = `classes: {shared: {limits: ["pvc:data wbps=4Mi"]}, other: {limits: ["pvc:other wbps=1Mi"]}}
rules: [{name: all, class: shared}]
`
	policyOf := func(class string) *policy.Policy {
		t.Helper()
		p, err := policy.ParseFile([]byte("apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n" + strings.Replace(shared, "class: shared", "class: "+class, 1)))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, tt := range map[string]struct {
		annotations map[string]string
		want        blkio.Amount
	}{
		"no annotations": {nil, 4 * mi}, "lower": {annotationsOf(limitsKey+"containers", "/data wbps=2Mi"), 2 * mi}, "higher": {annotationsOf(limitsKey+"containers", "/data wbps=9Mi"), 9 * mi},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiveNode(t)
			l.Reload(policyOf("shared"))
			sb := sandbox(tt.annotations)
			l.run(sb, "a", "b")
			live := Live{Namespace: "prod", Name: "db-0", Annotations: tt.annotations, Claims: claimsOf("")}
			l.SetLive("u1", &live)
			l.pass(t.Context())
			l.wantData("known", all(tt.want, tt.want))
			unknown := live
			unknown.Claims = policy.UnknownClaims("too much")
			l.SetLive("u1", &unknown)
			for range 2 {
				l.pass(t.Context())
				l.pass(t.Context())
				l.wantData("unknown", all(tt.want, tt.want))
			}
			l.restart(policyOf("shared"))
			l.list(sb, "a", "b")
			l.wantData("restarted", all(tt.want, tt.want))
			l.Reload(policyOf("other"))
			l.pass(t.Context())
			l.pass(t.Context())
			if tt.annotations == nil {
				l.wantData("another class", all(0, 0))
			}
		})
	}
}

// TestClaimTargetAtCreate verifies that a container whose annotations name a claim is rejected in the same words until the
// claims are known, and starts with its limit then.
func TestClaimTargetAtCreate(t *testing.T) {
	l := newLiveNode(t)
	l.Synchronize(nil, nil)
	pairs := []string{limitsKey + "containers", "pvc:data wbps=3Mi"}
	sb := sandbox(annotationsOf(pairs...))
	const want = `nri-blkio: limits.blkio.noderesource.dev/containers: entry 1 "pvc:data wbps=3Mi": the claims of the pod are not known yet (the cluster part of nri-blkio reports them; on a node without it, write the path of the mount)`
	for range 2 {
		if _, err := l.create(t.Context(), sb, ctr("a", bind("/mnt/data/x", "/data")), false); err == nil || err.Error() != want {
			t.Fatalf("%v", err)
		}
	}
	l.claim(claimsOf("wbps=9Mi"), pairs...)
	l.run(sb, "a", "b")
	l.wantData("known", all(3*mi, 3*mi))

	l = newLiveNode(t)
	l.policy.Store(rules(t, "onError: {unenforceable: ignore}\n"))
	l.run(sb, "a", "b")
	l.wantData("ignored", all(0, 0))
	if r := recordOf(t, l.Node, cgroupOf("a")); r == nil || !strings.Contains(r.Error, "not known yet") {
		t.Errorf("the record is %+v", r)
	}
	l.claim(claimsOf(""), pairs...)
	l.wantData("known later", all(3*mi, 3*mi))
	l.restart(policy.Default())
	l.list(sb, "a", "b")
	l.wantData("restarted without a document", all(3*mi, 3*mi))
}

// TestClaimOfDevice verifies that a raw block volume is limited as a mounted one is.
func TestClaimOfDevice(t *testing.T) {
	l := newLiveNode(t)
	l.Synchronize(nil, nil)
	raw := policy.ClaimVolume{Claim: "raw", Places: []policy.Place{{Container: "a", Path: "/dev/xvda"}}, Limits: new("riops=100")}
	l.claim(policy.NewClaims([]policy.ClaimVolume{raw}))
	c := ctr("a")
	c.Spec = func() *inventory.Spec {
		return &inventory.Spec{Name: "a", Devices: []inventory.Device{{Path: "/dev/xvda", Type: "b", Dev: dataDisk.Dev}}}
	}
	spec, err := l.create(t.Context(), sandbox(nil), c, false)
	if err != nil || spec.DevLimits()[dataDisk.Dev][blkio.Riops] != 100 {
		t.Errorf("%v, %v", spec, err)
	}
}

// TestClaimsBudget verifies that limits of claims cannot take more than the budget of the namespace has room for, nor by a
// restart, and that a wrong one takes nothing more.
func TestClaimsBudget(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	claims := func(text string) *policy.Claims {
		return policy.NewClaims([]policy.ClaimVolume{{Claim: "data", Places: []policy.Place{{Container: "a", Path: "/data"}}, Limits: &text}})
	}
	set := func(pod, text string) {
		b.SetLive("u"+pod, &Live{Namespace: "tenant-a", Name: pod, Claims: claims(text)})
		b.pass(t.Context())
	}
	var sandboxes []*Sandbox
	var members []*Container
	for _, pod := range []string{"1", "2"} {
		set(pod, "wbps=80Mi")
		sb := tenant(pod, "")
		c := member(sb, "a", bind("/x", "/data"))
		b.run(sb, c)
		c.State = Running
		sandboxes, members = append(sandboxes, sb), append(members, c)
	}
	b.wantRefusal(tenant("3", "* wbps=50Mi"), member(tenant("3", "* wbps=50Mi"), "a"), "nri-blkio: limits.blkio.noderesource.dev/containers: wbps=50Mi on disk vda exceeds the budget of namespace tenant-a: 160Mi of 200Mi are granted to 2 pods (wait for room, or write at most 40Mi)")
	of := func(pod string) blkio.Amount {
		d := b.peek().pods["sb-"+pod].containers["sb-"+pod+"-a"].decision.desired
		return d.Settings.DevLimits()[rootDisk.Dev][blkio.Wbps]
	}
	want := func(when string, one, two blkio.Amount) {
		t.Helper()
		if of("1") != one*mi || of("2") != two*mi {
			t.Errorf("%s: %v and %v", when, of("1"), of("2"))
		}
	}
	set("1", "wbps=130Mi")
	want("no room", 80, 80)
	if err := b.peek().pods["sb-1"].edit.err; err == nil || !strings.HasPrefix(err.Error(), `the limits of a claim were changed, and those before stay in force: nri-blkio: "claim data": wbps=130Mi on disk vda exceeds the budget`) {
		t.Errorf("%v", err)
	}
	set("2", "wbps=50Mi")
	b.pass(t.Context())
	want("room", 130, 50)
	set("2", "wpbs=1Mi")
	want("wrong", 130, 50)
	if got := scrape(t, b.Node)["live_changes_total{applied}"]; got != 0 {
		t.Errorf("%v edits of annotations are counted", got)
	}
	b.restart(tenantBudget)
	set("1", "wbps=150Mi")
	set("2", "wbps=60Mi")
	b.Synchronize(sandboxes, members)
	b.pass(t.Context())
	if sum := of("1") + of("2"); sum > 200*mi {
		t.Errorf("restarted: %v and %v", of("1"), of("2"))
	}
}

// TestClaimRefusedKind verifies that a rejection because of unknown claims counts as unenforceable.
func TestClaimRefusedKind(t *testing.T) {
	l := newLiveNode(t)
	s := session{l.Node, noDeadline}
	if _, err := s.CreateContainer(t.Context(), sandbox(annotationsOf(limitsKey+"container.a", "pvc:data wbps=3Mi")), ctr("a")); err == nil {
		t.Fatal("not rejected")
	}
	if got := scrape(t, l.Node)["refused_containers_total{"+annotation.Unenforceable.String()+"}"]; got != 1 {
		t.Errorf("%v", got)
	}
}

// TestClaimsAreNoEdit verifies that changed claims alone are not in the record of a pod, as edited labels are, and that the event of
// rejected claims names them.
func TestClaimsAreNoEdit(t *testing.T) {
	r := newRequest(FactsOf("prod", map[string]string{"tier": "a"}, "", ""), nil)
	claims := claimsOf("wbps=1Mi")
	if got := r.changed(r.facts.Labels, claims).record("sb", nil); got != nil {
		t.Errorf("the record of changed claims is %+v", got)
	}
	labelled := r.changed(map[string]string{"tier": "b"}, claims)
	for name, next := range map[string]*request{"labels": labelled, "claims after labels": labelled.changed(labelled.facts.Labels, claimsOf(""))} {
		if got := next.record("sb", nil); got == nil || got.Labels["tier"] != "b" {
			t.Errorf("%s: the record is %+v", name, got)
		}
	}
	rejected := edit{next: labelled, err: &rejectedEdit{partClaims, errNoAnswer}}
	if got, want := rejected.text(), "the limits of a claim were changed, and those before stay in force: "+errNoAnswer.Error(); got != want {
		t.Errorf("the event is %q, want %q", got, want)
	}
}

// changed returns a request with the labels and claims of a live change.
func (r *request) changed(labels map[string]string, claims *policy.Claims) *request {
	facts := r.facts
	facts.Labels, facts.Claims = labels, claims
	return r.withFacts(&facts)
}
