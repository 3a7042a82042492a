package podfacts

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/policy"
)

// TestEdit verifies that a record has what the runtime does not report, without claims, and that a restarted process restores it.
func TestEdit(t *testing.T) {
	reported, other := asked("a", "x", ""), asked("b", "y", "wbps=2Mi")
	inNamespace := reported.InNamespace(map[string]string{"plan": "gold"}, []string{"plan", "team"})
	removed := Facts{Annotations: map[string]string{}, Labels: map[string]string{}}
	for name, tt := range map[string]struct {
		r    *Request
		want string // in the record, "" for none
	}{
		"as reported": {reported, ""},
		"claims":      {reported.With(other, Volumes), ""},
		"annotations": {reported.With(other, Annotations), `{"sandbox":"sb","annotations":{"` + key + `":"b"}}`},
		"labels":      {reported.With(other, Labels|Volumes), `{"sandbox":"sb","labels":{"tier":"y"}}`},
		"later claims": {
			reported.With(other, Labels).With(other, Volumes), `{"sandbox":"sb","labels":{"tier":"y"}}`,
		},
		"removed":   {reported.With(removed.Request("", ""), Annotations|Labels), `{"sandbox":"sb","annotations":{},"labels":{}}`},
		"namespace": {inNamespace, `{"sandbox":"sb","namespaceLabels":{"plan":"gold","team":null}}`},
	} {
		e := tt.r.Edit("sb")
		if tt.want == "" {
			if e != nil || e.Size() != 0 {
				t.Errorf("%s: %+v", name, e)
			}
			continue
		}
		data, err := json.Marshal(e)
		if err != nil || string(data) != tt.want || e.Size() != len(`,"edit":`)+len(data) {
			t.Errorf("%s: %s, %v, %d bytes", name, data, err, e.Size())
		}
		read := new(Edit)
		if err := json.Unmarshal(data, read); err != nil {
			t.Fatal(err)
		}
		restored := asked("a", "x", "").Restored(read, "sb")
		if d := restored.Differences(tt.r) &^ Volumes; d != 0 {
			t.Errorf("%s: restored without %s", name, d)
		}
		if d := cmp.Diff(e, restored.Edit("sb")); d != "" {
			t.Errorf("%s: recorded again: %s", name, d)
		}
		if d := reported.Restored(read, "later").Differences(reported); d&^Namespace != 0 {
			t.Errorf("%s: a later sandbox has other %s", name, d)
		}
		if newer := other.With(asked("c", "z", ""), Annotations|Labels).InNamespace(map[string]string{"plan": "tin"}, []string{"plan"}); newer.Restored(read, "sb") != newer {
			t.Errorf("%s: what is newer was replaced", name)
		}
	}
}

// TestWithinRoom verifies that of too many labels those are kept by which a rule selects.
func TestWithinRoom(t *testing.T) {
	pol, err := policy.ParseFile([]byte(`apiVersion: blkio.noderesource.dev/v1alpha1
kind: NodePolicy
rules:
- {name: all, match: {podSelector: {matchLabels: {tier: a}}}}
- {name: rest}
`))
	if err != nil {
		t.Fatal(err)
	}
	f := Facts{Labels: map[string]string{"tier": "a"}}
	if kept, isCut := f.WithinRoom(pol); isCut || len(kept.Labels) != 1 {
		t.Errorf("%v, cut: %t", kept.Labels, isCut)
	}
	for i := range LabelRoom / LabelSize {
		f.Labels[string(rune('b'+i))] = ""
	}
	if kept, isCut := f.WithinRoom(pol); !isCut || len(kept.Labels) != 1 || kept.Labels["tier"] != "a" {
		t.Errorf("%d labels, cut: %t", len(kept.Labels), isCut)
	}
}
