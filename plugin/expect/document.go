package expect

import (
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/strict"
)

// fileDocument is the form of a file of cases.
type fileDocument struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Cases      []caseDocument `json:"cases"`
}

type caseDocument struct {
	Name   string         `json:"name"`
	Pod    podDocument    `json:"pod"`
	Expect expectDocument `json:"expect"`
}

type podDocument struct {
	Manifest        string            `json:"manifest"`
	Kind            string            `json:"kind"`
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace"`
	Labels          map[string]string `json:"labels"`
	NamespaceLabels map[string]string `json:"namespaceLabels"`
	QOSClass        policy.QOS        `json:"qosClass"`
	Annotations     map[string]string `json:"annotations"`
	Containers      []string          `json:"containers"`
}

type expectDocument struct {
	Rule               *string                      `json:"rule"`
	Mode               *policy.Mode                 `json:"mode"`
	AnnotationsIgnored *bool                        `json:"annotationsIgnored"`
	EachContainer      *containerDocument           `json:"eachContainer"`
	Containers         map[string]containerDocument `json:"containers"`
	PodTotal           *valuesDocument              `json:"podTotal"`
}

type containerDocument struct {
	Class   *string        `json:"class"`
	Refused *strict.Scalar `json:"refused"`
	valuesDocument
}

// valuesDocument has the expected values of a container, or of the pod as a whole.
type valuesDocument struct {
	Limits  []limitDocument  `json:"limits"`
	Weight  *strict.Scalar   `json:"weight"`
	Weights []weightDocument `json:"weights"`
}

type limitDocument struct {
	Target string        `json:"target"`
	Rbps   strict.Scalar `json:"rbps"`
	Wbps   strict.Scalar `json:"wbps"`
	Riops  strict.Scalar `json:"riops"`
	Wiops  strict.Scalar `json:"wiops"`
	From   string        `json:"from"`
}

type weightDocument struct {
	Target string        `json:"target"`
	Weight strict.Scalar `json:"weight"`
	From   string        `json:"from"`
}

// exampleDocument returns a document with each field.
func exampleDocument() any {
	values := valuesDocument{Limits: []limitDocument{{}}, Weights: []weightDocument{{}}}
	container := containerDocument{valuesDocument: values}
	return &fileDocument{Cases: []caseDocument{{Expect: expectDocument{
		EachContainer: &container, Containers: map[string]containerDocument{strict.Name: container}, PodTotal: &values,
	}}}}
}
