package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

const fileHead = "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n"

func TestParseFile(t *testing.T) {
	full := Default()
	full.Mode = ModeObserve
	full.OnError = OnError{Invalid: Ignore, Unenforceable: Ignore, Internal: Reject}
	full.Floors = Floors{Bps: 1 << 20, Iops: 2000}
	full.Bounds.MaxWeight = 10000
	full.HostKernelHandlers = []string{"", "runc"}
	some := Default()
	some.OnError.Invalid = Ignore
	some.Floors.Bps = 2
	on, off := Default(), Default()
	on.Writeback.Repair, off.Writeback.Repair = RepairOn, RepairOff
	none := Default()
	none.HostKernelHandlers = []string{}
	unclassed, one := Default(), Default()
	unclassed.Classes, one.Classes = nil, map[string]*Class{"a": {Name: "a", weights: annotation.WeightOfAll("classes.a", 5)}}
	one.Classes["a"].targets = one.Classes["a"].weights.Targets()
	tests := []struct {
		name, text string
		want       *Policy
	}{
		{"no classes", fileHead + "classes: {}\n", unclassed},
		{"other classes", fileHead + "classes: {a: {weight: 5}}\n", one},
		{"least", fileHead, Default()},
		{"full", fileHead + "mode: observe\nonError: {invalid: ignore, unenforceable: ignore, internal: reject}\nfloors: {bps: 1Mi, iops: 2k}\nbounds: {weight: {max: 10000}}\nhostKernelHandlers: ['', runc]\n", full},
		{"some", "# ours\n---\n" + fileHead + "onError: {invalid: ignore}\nfloors:\n  bps: 2\n", some},
		{"empty parts", fileHead + "onError: {}\nfloors: {}\nbounds: {weight: {}}\nhostKernelHandlers: []\n...\n# end\n", none},
		{"repair on", fileHead + "writeback: {repair: true}\n", on},
		{"repair off", fileHead + "writeback: {repair: false}\n", off},
		{"repair by the kernel", fileHead + "writeback: {repair: auto}\n", Default()},
		{"JSON", `{"apiVersion": "blkio.noderesource.dev/v1alpha1", "kind": "NodePolicy"}`, Default()},
	}
	for _, tt := range tests {
		got, err := ParseFile([]byte(tt.text))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, got, byClasses()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

// checkFileErrors checks that each of these texts is rejected, with this error.
func checkFileErrors(t *testing.T, tests []struct{ text, want string }) {
	t.Helper()
	for _, tt := range tests {
		p, err := ParseFile([]byte(tt.text))
		if err == nil || !strings.HasPrefix(err.Error(), "parse policy: ") || !strings.Contains(err.Error(), tt.want) || p != nil {
			t.Errorf("%q:\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

func TestParseFileErrors(t *testing.T) {
	checkFileErrors(t, []struct{ text, want string }{
		{"", `apiVersion: Required value: write "blkio.noderesource.dev/v1alpha1"`},
		{"null", `kind: Required value: write "NodePolicy"`},
		{"[]", "expected an object with fields, found array"},
		{"just text", "expected an object with fields, found string"},
		{"kind: NodePolicy", `apiVersion: Required value: write "blkio.noderesource.dev/v1alpha1"`},
		{"apiVersion: blkio.noderesource.dev/v1alpha1", `kind: Required value: write "NodePolicy"`},
		{"apiVersion: blkio.noderesource.dev/v1\nkind: NodePolicy", `apiVersion: Unsupported value: "blkio.noderesource.dev/v1": supported values: "blkio.noderesource.dev/v1alpha1"`},
		{"apiVersion: 1\nkind: NodePolicy", `line 1: apiVersion: Invalid value: expected a string, found number`},
		{"apiVersion: blkio.noderesource.dev/v1alpha1\nkind: ConfigMap", `kind: Unsupported value: "ConfigMap": supported values: "NodePolicy"`},
		{"image: {repository: a}\nwriteback: {enabled: true}", `parse policy: this is a file of Helm values (write the policy in a file of its own`},
		{"policyFile: a", "this is a file of Helm values"},
		{fileHead + "image: a", "image: Forbidden: unknown field"},
		{fileHead + "onErorr: {}", `onErorr: Forbidden: unknown field (did you mean "onError"?)`},
		{fileHead + "Mode: observe", `Mode: Forbidden: unknown field (did you mean "mode"?)`},
		{fileHead + "zz: 1", `zz: Forbidden: unknown field`},
		{fileHead + "mode:", `mode: Required value`},
		{fileHead + "mode: Observe", `mode: Unsupported value: "Observe": supported values: "enforce", "observe"`},
		{fileHead + "mode: 1", `mode: Invalid value: expected a string, found number`},
		{fileHead + "mode: observe\nmode: enforce", `line 4: key "mode" already set in map`},
		{fileHead + "onError: reject", `onError: Invalid value: expected an object with fields, found string`},
		{fileHead + "onError: {invalid: warn}", `onError.invalid: Unsupported value: "warn": supported values: "reject", "ignore"`},
		{fileHead + "onError: {internal: null}", `onError.internal: Required value`},
		{fileHead + "onError: {Invalid: ignore}", `onError.Invalid: Forbidden: unknown field (did you mean "onError.invalid"?)`},
		{fileHead + "onError: {invalid: ignore, invalid: reject}", `line 3: key "invalid" already set in map`},
		{fileHead + "exempt: {namespaces: [kube-system]}", `exempt: Forbidden: unknown field`},
		{fileHead + "budget: []", `budget: Forbidden: unknown field (did you mean "budgets"?)`},
		{fileHead + "---\nmode: observe", `expected one YAML document, found more`},
		{fileHead + "--- {mode: observe}", `expected one YAML document, found more`},
		{fileHead + "...\nmode: observe", `expected one YAML document, found more`},
		{fileHead + "mode: [", `did not find expected node content`},
	})
}

// TestParseFieldErrors covers values of the fields in objects that cannot be.
func TestParseFieldErrors(t *testing.T) {
	checkFileErrors(t, []struct{ text, want string }{
		{fileHead + "writeback: {backStop: true}", `writeback.backStop: Forbidden: unknown field (did you mean "writeback.backstop"?)`},
		{fileHead + "writeback: {backstop: 1}", `writeback.backstop: Invalid value: expected true or false, found number`},
		{fileHead + "writeback: {handOver: 'on'}", `writeback.handOver: Invalid value: expected true or false, found string`},
		{fileHead + "writeback: {repair: 1}", `writeback.repair: Unsupported value: "1": supported values: "auto", "true", "false"`},
		{fileHead + "writeback: {repair: on-all}", `writeback.repair: Unsupported value: "on-all": supported values: "auto", "true", "false"`},
		{fileHead + "writeback: {repair: [true]}", `writeback.repair: Unsupported value: "[true]": supported values: "auto", "true", "false"`},
		{fileHead + "writeback: {contested: all}", `writeback.contested: Unsupported value: "all": supported values: "majority", "strict"`},
		{fileHead + "writeback: {dirtyGuard: 1Mi}", `writeback.dirtyGuard: Invalid value: "1Mi": must be at least 16Mi`},
		{fileHead + "writeback: {dirtyGuard: max}", `writeback.dirtyGuard: Invalid value: "max": a limit is required`},
		{fileHead + "writeback: {dirtyGuard: true}", `writeback.dirtyGuard: Invalid value: "true": invalid number "true"`},
		{fileHead + "writeback: {dirtyGuard: ''}", `writeback.dirtyGuard: Invalid value: "": key "wbps" has no value`},
		{fileHead + "writeback: {budget: {cpu: 0}}", `writeback.budget.cpu: Invalid value: 0: must be between 1 and 100, inclusive`},
		{fileHead + "writeback: {budget: {filesPerSecond: 100001}}", `writeback.budget.filesPerSecond: Invalid value: 100001: must be between 1 and 100000, inclusive`},
		{fileHead + "writeback: {budget: {extraBps: 63Ki}}", `writeback.budget.extraBps: Invalid value: "63Ki": must be at least 64Ki`},
		{fileHead + "writeback: {budget: {bps: 1Mi}}", `writeback.budget.bps: Forbidden: unknown field`},
		{fileHead + "floors: {wbps: 1Mi}", `floors.wbps: Forbidden: unknown field (did you mean "floors.bps"?)`},
		{fileHead + "floors: {bps: 50MB}", `floors.bps: Invalid value: "50MB": invalid quantity "50MB" (write 50M or 50Mi)`},
		{fileHead + "floors: {bps: 0}", `floors.bps: Invalid value: "0": must be at least 2`},
		{fileHead + "floors: {bps: 1}", `floors.bps: Invalid value: "1": must be at least 2`},
		{fileHead + "floors: {iops: max}", `floors.iops: Invalid value: "max": a limit is required`},
		{fileHead + "floors: {iops: [8]}", `floors.iops: Invalid value: "[8]": invalid number "[8]" (write a whole number such as 2k)`},
		{fileHead + "floors: {iops: true}", `floors.iops: Invalid value: "true": invalid number "true" (write a whole number such as 2k)`},
		{fileHead + "bounds: 100", `bounds: Invalid value: expected an object with fields, found number`},
		{fileHead + "bounds: {wieght: {max: 5}}", `bounds.wieght: Forbidden: unknown field (did you mean "bounds.weight"?)`},
		{fileHead + "bounds: {weight: 100}", `bounds.weight: Invalid value: expected an object with fields, found number`},
		{fileHead + "bounds: {weight: {mxa: 1}}", `bounds.weight.mxa: Forbidden: unknown field (did you mean "bounds.weight.max"?)`},
		{fileHead + "bounds: {weight: {max: 0}}", `bounds.weight.max: Invalid value: 0: must be between 1 and 10000, inclusive`},
		{fileHead + "bounds: {weight: {max: 10001}}", `bounds.weight.max: Invalid value: 10001: must be between 1 and 10000, inclusive`},
		{fileHead + "bounds: {weight: {max: '50'}}", `bounds.weight.max: Invalid value: expected a whole number, found string`},
		{fileHead + "bounds: {weight: {max: 1.5}}", `bounds.weight.max: Invalid value: expected a whole number, found number 1.5`},
		{fileHead + "hostKernelHandlers: runc", `hostKernelHandlers: Invalid value: expected a list, found string`},
		{fileHead + "hostKernelHandlers: [runc, 1]", `line 3: hostKernelHandlers[1]: Invalid value: expected a string, found number`},
		{fileHead + "hostKernelHandlers: [runc, null]", `hostKernelHandlers[1]: Required value`},
	})
}

// TestParseFileAllErrors verifies that all errors of a file are reported at once.
func TestParseFileAllErrors(t *testing.T) {
	_, err := ParseFile([]byte(fileHead + "mode: x\nonError: {invalid: z}\nfloors: {bps: z}\nzz: 1\nwriteback: {budget: {zz: 1}}"))
	for _, want := range []string{"mode:", "onError.invalid:", "floors.bps:", "zz:", "writeback.budget.zz:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in %v", want, err)
		}
	}
}

func TestRepairMoves(t *testing.T) {
	for _, tt := range []struct {
		repair              Repair
		corrected, affected bool
	}{
		{RepairAuto, true, false},
		{RepairOn, true, true},
		{RepairOff, false, false},
	} {
		if got := tt.repair.Moves(true); got != tt.corrected {
			t.Errorf("%s on a corrected kernel: got %v", tt.repair, got)
		}
		if got := tt.repair.Moves(false); got != tt.affected {
			t.Errorf("%s on another kernel: got %v", tt.repair, got)
		}
	}
}

// TestDocument verifies that each field of a policy is in its document, and comes back from it.
func TestDocument(t *testing.T) {
	want := &Policy{
		Mode: ModeObserve, OnError: OnError{Ignore, Ignore, Reject}, Floors: Floors{Bps: 1 << 20, Iops: 2000}, Bounds: Bounds{MaxWeight: 7},
		Writeback: Writeback{
			Backstop: true, HandOver: true, DirtyGuard: 32 << 20, Repair: RepairOn, Contested: Strict,
			Budget: Budget{FilesPerSecond: 3, ExtraBps: 1 << 20, CPU: 5},
		},
		HostKernelHandlers: []string{"", "runc"}, Classes: Default().Classes,
	}
	d := newDocument(want)
	d.APIVersion, d.Kind = apiVersion, fileKind
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseFile(text)
	if diff := cmp.Diff(want, got, byClasses()); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}
