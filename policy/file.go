package policy

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/strict"
)

const (
	apiVersion = annotation.Domain + "/v1alpha1"
	fileKind   = "NodePolicy"
)

// ParseFile parses a node policy:
//
//	apiVersion: blkio.noderesource.dev/v1alpha1
//	kind: NodePolicy
//	mode: enforce
//	onError: {invalid: reject, unenforceable: reject, internal: ignore}
//	floors: {bps: 64Ki, iops: 8}
//	bounds: {max: ["* wbps=500Mi"], min: ["* wiops=50"], weight: {max: 100, min: 10}}
//	classes:
//	  bronze: {limits: ["* wbps=20Mi wiops=500"], weight: 50}
//	rules:
//	- name: batch
//	  match: {namespaces: ["batch-*"], podSelector: {matchLabels: {tier: batch}}, qos: [BestEffort]}
//	  mode: observe
//	  class: bronze
//	  annotations: allow
//	  bounds: {max: ["* wbps=100Mi"]}
//	budgets:
//	- {namespaces: ["tenant-*"], limits: ["* wbps=200Mi"], weight: 300}
//	writeback:
//	  {backstop: true, handOver: true, dirtyGuard: 256Mi, repair: auto, contested: majority,
//	  budget: {filesPerSecond: 100, extraBps: 16Mi, cpu: 10}}
//	disks:
//	- match: {names: ["nvme*"], models: ["*"], rotational: false}
//	  weights: auto
//	  model: {rbps: 3Gi, rseqiops: 400k, rrandiops: 350k, wbps: 2Gi, wseqiops: 300k, wrandiops: 250k}
//	  qos: {rpct: 95, rlat: 5ms, wpct: 95, wlat: 10ms, min: 50, max: 150}
//	reserve: {system: 30%}
//	hostKernelHandlers: ["", runc, crun]
//
// A field that is left out has the value of Default, where dirtyGuard is 0. A list of
// handlers replaces the default list. Decoding is strict: it is an error if a field is
// unknown, occurs twice, has no value, or has a name in another case, and if a second
// document follows. The error names the line and the path of each wrong field.
func ParseFile(data []byte) (*Policy, error) {
	p, err := parseFile(data)
	if err != nil {
		return nil, fmt.Errorf("parse policy: %w", err)
	}
	return p, nil
}

func parseFile(data []byte) (*Policy, error) {
	d := newDocument(Default())
	unknown, err := strict.Decode(data, d)
	if err != nil {
		return nil, err
	}
	if d.Kind == "" && slices.ContainsFunc(unknown, func(e *field.Error) bool { return e.Field == "policyFile" || e.Field == "image" }) {
		return nil, errors.New("this is a file of Helm values (write the policy in a file of its own, for --set-file policyFile=policy.yaml)")
	}
	p, errs := d.policy()
	return p, strict.Join(data, append(unknown, errs...))
}
