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
		{"", "not an object with fields"},
		{"null", "not an object with fields"},
		{"[]", "not an object with fields"},
		{"just text", "not an object with fields"},
		{"kind: NodePolicy", `apiVersion: missing (write "blkio.noderesource.dev/v1alpha1")`},
		{"apiVersion: blkio.noderesource.dev/v1alpha1", `kind: missing (write "NodePolicy")`},
		{"apiVersion: blkio.noderesource.dev/v1\nkind: NodePolicy", `apiVersion: "blkio.noderesource.dev/v1" is not known here (write "blkio.noderesource.dev/v1alpha1")`},
		{"apiVersion: 1\nkind: NodePolicy", `apiVersion: "1" is not known here (write "blkio.noderesource.dev/v1alpha1")`},
		{"apiVersion: blkio.noderesource.dev/v1alpha1\nkind: ConfigMap", `kind: "ConfigMap" is not known here (write "NodePolicy")`},
		{fileHead + "onErorr: {}", `unknown field "onErorr" (did you mean "onError"?)`},
		{fileHead + "Mode: observe", `unknown field "Mode" (did you mean "mode"?)`},
		{fileHead + "zz: 1", `unknown field "zz" (` + fields + `)`},
		{fileHead + "mode:", `mode: no value`},
		{fileHead + "mode: Observe", `mode: "Observe" is none of ["enforce" "observe"]`},
		{fileHead + "mode: 1", `mode: "1" is none of ["enforce" "observe"]`},
		{fileHead + "mode: observe\nmode: enforce", `key "mode" already set in map`},
		{fileHead + "onError: reject", `onError: not an object with fields`},
		{fileHead + "onError: {invalid: warn}", `onError.invalid: "warn" is none of ["reject" "ignore"]`},
		{fileHead + "onError: {internal: null}", `onError: internal: no value`},
		{fileHead + "onError: {Invalid: ignore}", `onError: unknown field "Invalid" (did you mean "invalid"?)`},
		{fileHead + "writeback: {backStop: true}", `writeback: unknown field "backStop" (did you mean "backstop"?)`},
		{fileHead + "writeback: {backstop: 1}", `writeback.backstop: "1" is neither true nor false`},
		{fileHead + "writeback: {handOver: 'on'}", `writeback.handOver: "on" is neither true nor false`},
		{fileHead + "writeback: {repair: 1}", `writeback.repair: "1" is none of auto, true and false`},
		{fileHead + "writeback: {repair: on-all}", `writeback.repair: "on-all" is none of auto, true and false`},
		{fileHead + "writeback: {dirtyGuard: 1Mi}", `writeback.dirtyGuard: "1Mi" is no memory to run in (write at least 16Mi)`},
		{fileHead + "writeback: {dirtyGuard: max}", `writeback.dirtyGuard: "max" is no bound`},
		{fileHead + "writeback: {dirtyGuard: true}", `writeback.dirtyGuard: "true" is not a number`},
		{fileHead + "floors: {wbps: 1Mi}", `floors: unknown field "wbps" (did you mean "bps"?)`},
		{fileHead + "floors: {bps: 50MB}", `floors.bps: "50MB" is no Kubernetes quantity (write 50M or 50Mi)`},
		{fileHead + "floors: {bps: 0}", `floors.bps: 0 is less than the kernel takes (write at least 2)`},
		{fileHead + "floors: {bps: 1}", `floors.bps: 1 is less than the kernel takes (write at least 2)`},
		{fileHead + "floors: {iops: max}", `floors.iops: "max" is no bound`},
		{fileHead + "floors: {iops: [8]}", `floors.iops: "[8]" is not a number (write a whole number such as 2k)`},
		{fileHead + "floors: {iops: true}", `floors.iops: "true" is not a number (write a whole number such as 2k)`},
		{fileHead + "bounds: 100", `bounds: not an object with fields`},
		{fileHead + "bounds: {wieght: {max: 5}}", `bounds: unknown field "wieght" (did you mean "weight"?)`},
		{fileHead + "bounds: {weight: 100}", `bounds.weight: not an object with fields`},
		{fileHead + "bounds: {weight: {min: 1}}", `bounds.weight: unknown field "min"`},
		{fileHead + "bounds: {weight: {max: 0}}", `bounds.weight.max: "0" is no whole number from 1 to 10000`},
		{fileHead + "bounds: {weight: {max: 10001}}", `bounds.weight.max: "10001" is no whole number from 1 to 10000`},
		{fileHead + "bounds: {weight: {max: '50'}}", `bounds.weight.max: "50" is no whole number from 1 to 10000`},
		{fileHead + "hostKernelHandlers: runc", `hostKernelHandlers: not a list of names`},
		{fileHead + "hostKernelHandlers: [runc, 1]", `hostKernelHandlers: not a list of names`},
		{fileHead + "hostKernelHandlers: [runc, null]", `hostKernelHandlers: not a list of names`},
		{fileHead + "exempt: {namespaces: [kube-system]}", `exempt: not supported by this version yet`},
		{fileHead + "classes: {}", `classes: not supported by this version yet`},
		{fileHead + "rules: []", `rules: not supported by this version yet`},
		{fileHead + "---\nmode: observe", `more than one document`},
		{fileHead + "--- {mode: observe}", `more than one document`},
		{fileHead + "...\nmode: observe", `more than one document`},
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
