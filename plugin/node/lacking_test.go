package node

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/policy"
)

// TestLackingFacts verifies that the log and a metric name a running pod whose namespace has unknown labels that a rule needs, and
// one whose containers have unknown kinds, also a pod without limits. They do not name a pod whose facts come a moment later, nor
// one that no such rule could match.
func TestLackingFacts(t *testing.T) {
	const unlabelled, kindless = "pods_without_namespace_labels", "pods_without_container_kinds"
	elsewhere := func(rule string) string { return strings.Replace(rule, "match: {", "match: {namespaces: [other], ", 1) }
	kindsOfNone := strings.Replace(kindRules, "class: bronze, ", "match: {namespaces: [prod]}, ", 1)
	for name, tt := range map[string]struct {
		policy, metric string
		isSaid         bool
	}{
		"labels, limited":           {paying, unlabelled, true},
		"labels, bystander":         {unpaid, unlabelled, true},
		"labels, no selector":       {inProd, unlabelled, false},
		"labels, another namespace": {elsewhere(unpaid), unlabelled, false},
		"kinds, limited":            {kindRules, kindless, true},
		"kinds, bystander":          {kindsOfNone, kindless, true},
		"kinds, no classes of them": {inProd, kindless, false},
		"kinds, another namespace":  {strings.Replace(kindsOfNone, "prod", "other", 1), kindless, false},
		"kinds, waiting":            {"budgets: [{namespaces: [prod], limits: [\"* wbps=20Mi\"]}]\n" + kindRules, kindless, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLiveNode(t)
				l.Reload(rules(t, tt.policy))
				l.list(sandbox(nil), "a")
				l.pass(t.Context())
				l.wantLacking(tt.metric, 0)
				want := 0
				if tt.isSaid {
					want = 1
				}
				for range 3 {
					time.Sleep(l.resync)
					l.pass(t.Context())
				}
				l.wantLacking(tt.metric, want)
				if got := int(scrape(t, l.Node)[tt.metric]); got != want {
					t.Errorf("the metric is %d, want %d", got, want)
				}
				l.SetLive("u1", &Live{
					Namespace: "prod", Name: "db-0", Kinds: policy.ContainerKinds{"a": policy.EphemeralContainer},
					NamespaceLabels: map[string]string{"kubernetes.io/metadata.name": "prod"},
				})
				l.pass(t.Context())
				if got := scrape(t, l.Node)[tt.metric]; got != 0 {
					t.Errorf("the metric is %v with known facts", got)
				}
			})
		})
	}
}

// wantLacking verifies how often the log has the error about the pods of a metric.
func (l *liveNode) wantLacking(metric string, want int) {
	l.t.Helper()
	text, got := map[bool]string{true: "Labels of namespaces are unknown", false: "Kinds of containers are unknown"}[strings.HasSuffix(metric, "labels")], 0
	for _, e := range l.logged.AllEntries() {
		if strings.Contains(e.Message, text) {
			got++
			if e.Data["pod"] != "prod/db-0" || e.Data["pods"] != 1 {
				l.t.Errorf("the fields are %v", e.Data)
			}
		}
	}
	if got != want {
		l.t.Errorf("logged %d times, want %d", got, want)
	}
}
