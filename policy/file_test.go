package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	tests := []struct {
		name, text string
		want       *Policy
	}{
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
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

func TestParseFileErrors(t *testing.T) {
	const fields = "the fields are apiVersion, kind, mode, onError, floors, bounds, writeback, hostKernelHandlers"
	tests := []struct{ text, want string }{
		{"", "expected an object"},
		{"null", "expected an object"},
		{"[]", "expected an object"},
		{"just text", "expected an object"},
		{"kind: NodePolicy", `apiVersion: missing (write "blkio.noderesource.dev/v1alpha1")`},
		{"apiVersion: blkio.noderesource.dev/v1alpha1", `kind: missing (write "NodePolicy")`},
		{"apiVersion: blkio.noderesource.dev/v1\nkind: NodePolicy", `apiVersion: unknown value "blkio.noderesource.dev/v1" (write "blkio.noderesource.dev/v1alpha1")`},
		{"apiVersion: 1\nkind: NodePolicy", `apiVersion: unknown value "1" (write "blkio.noderesource.dev/v1alpha1")`},
		{"apiVersion: blkio.noderesource.dev/v1alpha1\nkind: ConfigMap", `kind: unknown value "ConfigMap" (write "NodePolicy")`},
		{fileHead + "onErorr: {}", `unknown field "onErorr" (did you mean "onError"?)`},
		{fileHead + "Mode: observe", `unknown field "Mode" (did you mean "mode"?)`},
		{fileHead + "zz: 1", `unknown field "zz" (` + fields + `)`},
		{fileHead + "mode:", `mode: missing value`},
		{fileHead + "mode: Observe", `mode: unknown value "Observe" (write enforce or observe)`},
		{fileHead + "mode: 1", `mode: unknown value "1" (write enforce or observe)`},
		{fileHead + "mode: observe\nmode: enforce", `key "mode" already set in map`},
		{fileHead + "onError: reject", `onError: expected an object`},
		{fileHead + "onError: {invalid: warn}", `onError.invalid: unknown value "warn" (write reject or ignore)`},
		{fileHead + "onError: {internal: null}", `onError: internal: missing value`},
		{fileHead + "onError: {Invalid: ignore}", `onError: unknown field "Invalid" (did you mean "invalid"?)`},
		{fileHead + "writeback: {backStop: true}", `writeback: unknown field "backStop" (did you mean "backstop"?)`},
		{fileHead + "writeback: {backstop: 1}", `writeback.backstop: expected true or false, found "1"`},
		{fileHead + "writeback: {handOver: 'on'}", `writeback.handOver: expected true or false, found "on"`},
		{fileHead + "writeback: {repair: 1}", `writeback.repair: unknown value "1" (write auto, true or false)`},
		{fileHead + "writeback: {repair: on-all}", `writeback.repair: unknown value "on-all" (write auto, true or false)`},
		{fileHead + "writeback: {dirtyGuard: 1Mi}", `writeback.dirtyGuard: "1Mi" is too small (minimum 16Mi)`},
		{fileHead + "writeback: {dirtyGuard: max}", `writeback.dirtyGuard: "max" is not allowed here`},
		{fileHead + "writeback: {dirtyGuard: true}", `writeback.dirtyGuard: invalid number "true"`},
		{fileHead + "floors: {wbps: 1Mi}", `floors: unknown field "wbps" (did you mean "bps"?)`},
		{fileHead + "floors: {bps: 50MB}", `floors.bps: invalid quantity "50MB" (write 50M or 50Mi)`},
		{fileHead + "floors: {bps: 0}", `floors.bps: 0 is too small (minimum 2)`},
		{fileHead + "floors: {bps: 1}", `floors.bps: 1 is too small (minimum 2)`},
		{fileHead + "floors: {iops: max}", `floors.iops: "max" is not allowed here`},
		{fileHead + "floors: {iops: [8]}", `floors.iops: invalid number "[8]" (write a whole number such as 2k)`},
		{fileHead + "floors: {iops: true}", `floors.iops: invalid number "true" (write a whole number such as 2k)`},
		{fileHead + "bounds: 100", `bounds: expected an object`},
		{fileHead + "bounds: {wieght: {max: 5}}", `bounds: unknown field "wieght" (did you mean "weight"?)`},
		{fileHead + "bounds: {weight: 100}", `bounds.weight: expected an object`},
		{fileHead + "bounds: {weight: {min: 1}}", `bounds.weight: unknown field "min"`},
		{fileHead + "bounds: {weight: {max: 0}}", `bounds.weight.max: expected a whole number from 1 to 10000, found "0"`},
		{fileHead + "bounds: {weight: {max: 10001}}", `bounds.weight.max: expected a whole number from 1 to 10000, found "10001"`},
		{fileHead + "bounds: {weight: {max: '50'}}", `bounds.weight.max: expected a whole number from 1 to 10000, found "50"`},
		{fileHead + "hostKernelHandlers: runc", `hostKernelHandlers: expected a list of strings`},
		{fileHead + "hostKernelHandlers: [runc, 1]", `hostKernelHandlers: expected a list of strings`},
		{fileHead + "hostKernelHandlers: [runc, null]", `hostKernelHandlers: expected a list of strings`},
		{fileHead + "exempt: {namespaces: [kube-system]}", `exempt: not supported`},
		{fileHead + "classes: {}", `classes: not supported`},
		{fileHead + "rules: []", `rules: not supported`},
		{fileHead + "---\nmode: observe", `expected one YAML document, found more`},
		{fileHead + "--- {mode: observe}", `expected one YAML document, found more`},
		{fileHead + "...\nmode: observe", `expected one YAML document, found more`},
		{fileHead + "mode: [", `did not find expected node content`},
	}
	for _, tt := range tests {
		p, err := ParseFile([]byte(tt.text))
		if err == nil || !strings.HasPrefix(err.Error(), "parse policy: ") || !strings.Contains(err.Error(), tt.want) || p != nil {
			t.Errorf("%q:\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
	// All that is wrong is said at once.
	_, err := ParseFile([]byte(fileHead + "mode: x\nonError: {invalid: y}\nfloors: {bps: z}"))
	for _, want := range []string{"mode:", "onError.invalid:", "floors.bps:"} {
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
