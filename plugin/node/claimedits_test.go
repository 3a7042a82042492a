package node

import (
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// newClaimedPod returns a node with a budget, and a pod of a tenant whose container a runs with wbps=80Mi by its claim.
func newClaimedPod(t *testing.T) (*budgetNode, *Sandbox, *Container) {
	t.Helper()
	b := newBudgetNode(t, tenantBudget)
	sb := tenant("1", "")
	c := member(sb, "a", bind("/x", "/data"))
	b.SetLive(sb.UID, &Live{Namespace: sb.Namespace, Name: sb.Name, Claims: claimsOf("wbps=80Mi")})
	b.run(sb, c)
	return b, sb, c
}

// setLive sets what the API server knows about a pod, and waits for what follows.
func (b *budgetNode) setLive(sb *Sandbox, c *policy.Claims, annotations map[string]string) {
	b.SetLive(sb.UID, &Live{Namespace: sb.Namespace, Name: sb.Name, Annotations: annotations, Claims: c})
	b.pass(b.t.Context())
}

// wbpsOfA returns the limit on the root disk that the container a of the tenant's pod is granted.
func (b *budgetNode) wbpsOfA() blkio.Amount {
	c := b.peek().pods["sb-1"].containers["sb-1-a"]
	return c.decision.desired.Settings.DevLimits()[rootDisk.Dev][blkio.Wbps]
}

// TestClaimRemovedAfterRestart verifies that limits of a claim that are removed are a change that the budget can reject, also when a
// restarted plugin learns of the claims only then.
func TestClaimRemovedAfterRestart(t *testing.T) {
	b, sb, c := newClaimedPod(t)
	c.State = Running
	b.pass(t.Context())
	b.setLive(sb, claimsOf(""), nil)
	if got := b.wbpsOfA(); got != 80*mi {
		t.Errorf("not even without a restart: %v", got)
	}
	b.restart(tenantBudget)
	b.SetLive(sb.UID, &Live{Namespace: sb.Namespace, Name: sb.Name, Claims: claimsOf("")})
	b.Synchronize([]*Sandbox{sb}, []*Container{c})
	b.pass(t.Context())
	if got := b.wbpsOfA(); got != 80*mi {
		t.Errorf("after a restart: %v, granted %q", got, b.granted())
	}
}

// TestClaimRemovedAfterOmission verifies the same when a document has omitted the claims meanwhile, which their author can cause.
func TestClaimRemovedAfterOmission(t *testing.T) {
	b, sb, _ := newClaimedPod(t)
	b.pass(t.Context())
	b.setLive(sb, policy.UnknownClaims("129 of them"), nil)
	b.setLive(sb, claimsOf(""), nil)
	if got := b.wbpsOfA(); got != 80*mi {
		t.Errorf("%v, granted %q", got, b.granted())
	}
}

// TestClaimTargetBesideStar verifies that an entry that names a claim still limits a running container while the claims are
// unknown, if another entry has a higher limit for the same disk.
func TestClaimTargetBesideStar(t *testing.T) {
	for _, how := range []string{"restart", "omitted"} {
		t.Run(how, func(t *testing.T) {
			l := newLiveNode(t)
			l.Synchronize(nil, nil)
			pairs := []string{limitsKey + "containers", "* wbps=9Mi; pvc:data wbps=2Mi"}
			sb := sandbox(annotationsOf(pairs...))
			l.claim(claimsOf(""), pairs...)
			l.run(sb, "a", "b")
			l.wantData("known", all(2*mi, 2*mi))
			if how == "restart" {
				l.restart(policy.Default())
				l.list(sb, "a", "b")
			} else {
				l.claim(policy.UnknownClaims("129 of them"), pairs...)
			}
			l.wantData(how, all(2*mi, 2*mi))
		})
	}
}

// TestClaimTotalBesideStar verifies the same for the pod as a whole.
func TestClaimTotalBesideStar(t *testing.T) {
	l := newLiveNode(t)
	l.Synchronize(nil, nil)
	pairs := []string{limitsKey + "pod-total", "* wbps=9Mi; pvc:data wbps=2Mi"}
	sb := sandbox(annotationsOf(pairs...))
	l.claim(claimsOf(""), pairs...)
	l.run(sb, "a", "b")
	l.wantData("known", map[string]blkio.Amount{podCgroup: 2 * mi})
	l.restart(policy.Default())
	l.list(sb, "a", "b")
	l.wantData("restarted", map[string]blkio.Amount{podCgroup: 2 * mi})
}

// TestClaimTargetBudget verifies that claims that become known do not have annotations that name them exceed the budget.
func TestClaimTargetBudget(t *testing.T) {
	pol := tenantBudget + "onError: {unenforceable: ignore}\n"
	b := newBudgetNode(t, pol)
	one, two := tenant("1", "* wbps=10Mi; pvc:data wbps=150Mi"), tenant("2", "* wbps=180Mi")
	b.run(one, member(one, "a", bind("/x", "/data")))
	b.run(two, member(two, "a"))
	b.pass(t.Context())
	b.wantGranted("before", "tenant-a vda wbps 190Mi of 200Mi, 2 pods")
	b.setLive(one, claimsOf(""), one.Annotations)
	b.wantGranted("after", "tenant-a vda wbps 190Mi of 200Mi, 2 pods")
}

// TestInvalidAnnotationBesideClaim verifies that the limits of a claim change although the annotations of the pod are invalid.
func TestInvalidAnnotationBesideClaim(t *testing.T) {
	for name, pol := range map[string]string{"no budget": "", "budget": tenantBudget} {
		t.Run(name, func(t *testing.T) {
			b := newBudgetNode(t, pol)
			sb := tenant("1", "rootfs rbps=1Mi")
			b.SetLive(sb.UID, &Live{Namespace: sb.Namespace, Name: sb.Name, Annotations: sb.Annotations, Claims: claimsOf("wbps=80Mi")})
			b.run(sb, member(sb, "a", bind("/x", "/data")))
			b.pass(t.Context())
			bad := map[string]string{limitsKey + "containers": "rootfs rpbs=1Mi"}
			b.setLive(sb, claimsOf("wbps=80Mi"), bad)
			b.setLive(sb, claimsOf("wbps=10Mi"), bad)
			if got := b.wbpsOfA(); got != 10*mi {
				t.Errorf("%v; %v", got, b.peek().pods["sb-1"].edit.err)
			}
		})
	}
}

// TestClaimBesideAnnotation verifies that edited annotations apply while the budget has no room for the limits of a claim.
func TestClaimBesideAnnotation(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	sb := tenant("1", "rootfs rbps=9Mi")
	b.SetLive(sb.UID, &Live{Namespace: sb.Namespace, Name: sb.Name, Annotations: sb.Annotations, Claims: claimsOf("wbps=80Mi")})
	b.run(sb, member(sb, "a", bind("/x", "/data")))
	b.pass(t.Context())
	b.setLive(sb, claimsOf("wbps=300Mi"), sb.Annotations)
	b.setLive(sb, claimsOf("wbps=300Mi"), map[string]string{limitsKey + "containers": "rootfs rbps=1Mi"})
	c := b.peek().pods["sb-1"].containers["sb-1-a"]
	if got := c.decision.desired.Settings.DevLimits()[rootDisk.Dev][blkio.Rbps]; got != mi {
		t.Errorf("rbps %v; %v", got, b.peek().pods["sb-1"].edit.err)
	}
}

// TestClaimKnownBesideInvalid verifies that a container with an entry that names a claim is created after a restart of the plugin
// while later annotations of the pod are invalid.
func TestClaimKnownBesideInvalid(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		b := newBudgetNode(t, tenantBudget)
		sb := tenant("1", "pvc:data wbps=50Mi")
		bad := map[string]string{limitsKey + "containers": "pvc:data wpbs=50Mi"}
		c1, c2 := member(sb, "a", bind("/x", "/data")), member(sb, "b", bind("/x", "/data"))
		b.SetLive(sb.UID, &Live{Namespace: sb.Namespace, Name: sb.Name, Annotations: sb.Annotations, Claims: claimsOf("rbps=80Mi")})
		b.run(sb, c1)
		b.run(sb, c2)
		c1.State, c2.State = Running, Running
		b.pass(t.Context())
		b.setLive(sb, claimsOf("rbps=80Mi"), bad)
		if restarts {
			b.restart(tenantBudget)
			b.SetLive(sb.UID, &Live{Namespace: sb.Namespace, Name: sb.Name, Annotations: bad, Claims: claimsOf("rbps=80Mi")})
			b.Synchronize([]*Sandbox{sb}, []*Container{c1, c2})
			b.pass(t.Context())
		}
		b.Stopped(sb.ID, c2.ID)
		b.Removed(sb.ID, c2.ID)
		b.pass(t.Context())
		c3 := member(sb, "b", bind("/x", "/data"))
		c3.ID += "2"
		if err := b.createOf(sb, c3); err != nil {
			t.Errorf("restarts %v: %v; edit %v", restarts, err, b.peek().pods["sb-1"].edit.err)
		}
	}
}

// TestClaimRejectsNothing verifies that limits of a claim whose disk cannot be found reject no container, even if internal
// failures do.
func TestClaimRejectsNothing(t *testing.T) {
	l := newLiveNode(t)
	l.restart(rules(t, "onError: {internal: reject}\n"))
	l.Synchronize(nil, nil)
	l.storage = disks{func(path string) blkio.Backing {
		if strings.HasPrefix(path, "/mnt/data") {
			return blkio.Backing{Err: syscall.EIO, Reason: "cannot look"}
		}
		return twoDisks(path)
	}}
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Claims: claimsOf("wbps=2Mi")})
	if _, err := l.create(t.Context(), sandbox(nil), ctr("a", bind("/mnt/data/x", "/data")), false); err != nil {
		t.Errorf("%v", err)
	}
}

// TestClaimAboveClass verifies that a claim keeps its value over a restart while the claims are unknown, also beside a lower class.
func TestClaimAboveClass(t *testing.T) {
	pol := rules(t, "rules:\n- {name: all, class: data}\n") // 5Mi on /data
	l := newLiveNode(t)
	l.restart(pol)
	sb := sandbox(nil)
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Claims: claimsOf("wbps=9Mi")})
	l.run(sb, "a", "b")
	l.wantData("known", all(9*mi, 9*mi))
	l.restart(pol)
	l.list(sb, "a", "b")
	l.wantData("restarted", all(9*mi, 9*mi))
}

// TestWrongClaimBesideAnother verifies that a mistake in the limits of one of two claims on a disk does not raise the limit.
func TestWrongClaimBesideAnother(t *testing.T) {
	two := func(low string) *policy.Claims {
		high := "wbps=8Mi"
		return policy.NewClaims([]policy.ClaimVolume{
			{Claim: "high", Places: []policy.Place{{Container: "a", Path: "/data"}}, Limits: &high},
			{Claim: "low", Places: []policy.Place{{Container: "a", Path: "/data"}}, Limits: &low},
		})
	}
	l := newLiveNode(t)
	l.run(sandbox(nil), "a", "b")
	l.claim(two("wbps=2Mi"))
	l.wantData("at first", map[string]blkio.Amount{cgroupOf("a"): 2 * mi})
	l.claim(two("wpbs=2Mi"))
	l.wantData("wrong", map[string]blkio.Amount{cgroupOf("a"): 2 * mi})
}

// TestFailedWritesAreNotForeign verifies that values that the plugin could not replace do not count as those of another program.
func TestFailedWritesAreNotForeign(t *testing.T) {
	l := newLiveNode(t)
	l.run(sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=9Mi")), "a", "b")
	l.want("at first", all(9*mi, 9*mi))
	l.refuse = func(name string) error {
		if path.Base(path.Dir(name)) == path.Base(podCgroup) && path.Base(name) == "io.max" {
			return syscall.ENOMEM
		}
		return nil
	}
	l.edit(limitsKey+"containers", "rootfs wbps=1Mi")
	for range 4 {
		l.pass(t.Context())
	}
	l.refuse = nil
	for range 3 {
		l.pass(t.Context())
	}
	l.want("writes work again", all(mi, mi))
}

// TestClaimLog verifies what is logged about a change of a claim in a namespace with a budget, and that a restart logs none.
func TestClaimLog(t *testing.T) {
	const pol = "budgets: [{namespaces: [prod], limits: ['* wbps=200Mi']}]\nonError: {invalid: ignore}\n"
	l := newLiveNode(t)
	l.restart(rules(t, pol))
	sb := sandbox(nil)
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Claims: claimsOf("wbps=2Mi")})
	l.run(sb, "a", "b")
	l.pass(t.Context())
	lines := func() (out []string) {
		for _, e := range l.logged.AllEntries() {
			if strings.Contains(e.Message, "claim") {
				out = append(out, e.Message)
			}
		}
		l.logged.Reset()
		return out
	}
	lines()
	const wrong, applied = "Limits of a claim do not count", "Applying changed limits of claims to a running container"
	l.claim(claimsOf("wpbs=9Mi"))
	if got := lines(); !slices.Equal(got, []string{wrong, wrong}) {
		t.Errorf("wrong limits: %q", got)
	}
	l.claim(claimsOf("wbps=1Mi"))
	if got := lines(); !slices.Equal(got, []string{applied, applied}) {
		t.Errorf("other limits: %q", got)
	}
	l.restart(rules(t, pol))
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Claims: claimsOf("wbps=1Mi")})
	l.list(sb, "a", "b")
	if got := lines(); slices.Contains(got, applied) {
		t.Errorf("a restart: %q", got)
	}
}

// TestRejectedAnnotationAboveClaim verifies that a limit of an annotation that a new policy rejects stays above the limit of a claim, and
// stays as well when a further policy ignores the claim.
func TestRejectedAnnotationAboveClaim(t *testing.T) {
	l := newLiveNode(t)
	pairs := []string{limitsKey + "containers", "/data wbps=1Mi"}
	l.claim(claimsOf("wbps=2Mi"), pairs...)
	l.run(sandbox(annotationsOf(pairs...)), "a", "b")
	for _, text := range []string{"", "floors: {bps: 1500Ki}\n", "rules: [{name: all, annotations: reject}]\n"} {
		l.Reload(rules(t, text))
		l.pass(t.Context())
		l.wantData(text, all(1*mi, 1*mi))
	}
}
