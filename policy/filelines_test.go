package policy

import "testing"

// TestErrorLines verifies that an error names the line of the field, its path with the index in each list, and
// the cause.
func TestErrorLines(t *testing.T) {
	const disks = fileHead + `disks:
- {}
- match:
    rotational: false
  model: {rbps: 1Gi, rseqiops: 1k, rrandiops: 1k, wbps: 1Gi, wseqiops: 1k, wrandiops: 1k}
- match:
    names: [vda]
`
	checkFileErrors(t, []struct{ text, want string }{
		{disks + "    rotational: yes please\n", `line 10: disks[2].match.rotational: Invalid value: expected true or false, found string`},
		{disks + "    models: vd\n", `line 10: disks[2].match.models: Invalid value: expected a list, found string (write it in brackets: [a, b])`},
		{disks + "    models:\n    - a\n    - 1\n", `line 12: disks[2].match.models[1]: Invalid value: expected a string, found number`},
		{disks + "    models: [[a]]\n", `line 10: disks[2].match.models[0]: Invalid value: expected a string, found array`},
		{disks + "  model:\n    rbps: [1]\n", `line 11: disks[2].model.rbps: Invalid value: "[1]"`},
		{disks + "  model: 1Gi\n", `line 10: disks[2].model: Invalid value: expected an object with fields, found string`},
		{disks + "  qos: []\n", `line 10: disks[2].qos: Invalid value: expected an object with fields, found array`},
		{disks + "  model: {rbps: 1Gi}\n", `line 10: disks[2].model.wrandiops: Required value: a model has all six values`},
		{disks + "  qos:\n    max: 0\n", `line 10: disks[2].qos: Invalid value: `},
		{disks + "  qos:\n    max: -1\n", `line 11: disks[2].qos.max: Invalid value: "-1"`},
		{disks + "  weights: never\n", `line 10: disks[2].weights: Unsupported value: "never"`},
		{disks + "  wieghts: on\n", `line 10: disks[2].wieghts: Forbidden: unknown field`},
		{disks + "  weights:\n", `line 10: disks[2].weights: Required value`},
		{disks + "- 7\n", `line 10: disks[3]: Invalid value: expected an object with fields, found number`},
		{fileHead + "disks: {}\n", `line 3: disks: Invalid value: expected a list, found object`},
		{fileHead + "x: &a {rotational: 1}\ndisks:\n- match: *a\n", `line 3: disks[0].match.rotational: Invalid value: expected true or false, found number`},
		{"# a comment\n\n" + fileHead + "hostKernelHandlers: [\n  runc,\n  1]\n", `line 7: hostKernelHandlers[1]: Invalid value: expected a string, found number`},
		{fileHead + "rules:\n- {name: a, match: {namespaces: [a]}}\n- {name: b, match: {namespaces: b}}\n", `line 5: rules[1].match.namespaces: Invalid value: expected a list, found string (write it in brackets: [a, b])`},
		{"mode: x\n" + fileHead, `line 1: mode: Unsupported value: "x"`},
		{"{\"kind\": \"NodePolicy\",\n \"mode\": 1}", `line 2: mode: Invalid value: expected a string, found number`},
		{fileHead + "reserve:\n  system: 95%\n", `line 4: reserve.system: Invalid value: "95%"`},
		{"mode: enforce\n", `parse policy: [apiVersion: Required value`},
	})
}
