package admission

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/mutation"
	"sigs.k8s.io/yaml"

	"github.com/nri-blkio/nri-blkio/test/admission/policies"
)

// The oldest versions of Kubernetes that have each kind of policy.
var (
	oldestValidating = version.MajorMinor(1, 30)
	oldestMutating   = version.MajorMinor(1, 36)
)

// expression is a part of a policy, as the API server compiles it.
type expression struct {
	name, text string
	types      []*celgo.Type
}

func (e *expression) GetName() string            { return e.name }
func (e *expression) GetExpression() string      { return e.text }
func (e *expression) ReturnTypes() []*celgo.Type { return e.types }

// validating is a compiled ValidatingAdmissionPolicy.
type validating struct {
	spec                  v1.ValidatingAdmissionPolicySpec
	validations, messages plugincel.ConditionEvaluator
	// largest is the largest cost of all expressions of a request so far.
	largest int64
}

// mutating is a compiled MutatingAdmissionPolicy with one JSON patch.
type mutating struct {
	compiler *plugincel.CompositedCompiler
	patch    plugincel.MutatingEvaluator
}

// object decodes the object of a kind from a file of deploy/admission: the first one, or the one with a name.
func object(t testing.TB, file, kind string, into any, name ...string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../deploy/admission", file))
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		var head metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(text), &head); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if head.Kind == kind && (len(name) == 0 || head.Name == name[0]) {
			if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			return
		}
	}
	t.Fatalf("%s has no %s %q", file, kind, name)
}

// compiler returns a compiler of a version of Kubernetes that knows the variables of a policy.
func compiler(t testing.TB, oldest *version.Version, variables []v1.Variable) *plugincel.CompositedCompiler {
	t.Helper()
	c, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(oldest))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variables {
		e := &expression{name: v.Name, text: v.Expression, types: []*celgo.Type{celgo.AnyType, celgo.DynType}}
		if r := c.CompileAndStoreVariable(e, plugincel.OptionalVariableDeclarations{}, environment.NewExpressions); r.Error != nil {
			t.Fatalf("variable %s: %v", v.Name, r.Error)
		}
	}
	return c
}

// readValidating compiles a ValidatingAdmissionPolicy of a file: the first one, or the one with a name.
func readValidating(t testing.TB, file string, name ...string) *validating {
	t.Helper()
	var p v1.ValidatingAdmissionPolicy
	object(t, file, "ValidatingAdmissionPolicy", &p, name...)
	c := compiler(t, oldestValidating, p.Spec.Variables)
	var validations, messages []plugincel.ExpressionAccessor
	for _, v := range p.Spec.Validations {
		validations = append(validations, &expression{text: v.Expression, types: []*celgo.Type{celgo.BoolType}})
		messages = append(messages, &expression{text: v.MessageExpression, types: []*celgo.Type{celgo.StringType}})
	}
	r := &validating{
		spec:        p.Spec,
		validations: c.CompileCondition(validations, plugincel.OptionalVariableDeclarations{}, environment.NewExpressions),
		messages:    c.CompileCondition(messages, plugincel.OptionalVariableDeclarations{}, environment.NewExpressions),
	}
	for _, err := range append(r.validations.CompilationErrors(), r.messages.CompilationErrors()...) {
		t.Fatal(err)
	}
	return r
}

// readMutating compiles the MutatingAdmissionPolicy of a file.
func readMutating(t testing.TB, file string) *mutating {
	t.Helper()
	var p v1.MutatingAdmissionPolicy
	object(t, file, "MutatingAdmissionPolicy", &p)
	c := compiler(t, oldestMutating, p.Spec.Variables)
	if len(p.Spec.Mutations) != 1 || p.Spec.Mutations[0].JSONPatch == nil {
		t.Fatalf("%s has not one JSON patch", file)
	}
	e := &expression{text: p.Spec.Mutations[0].JSONPatch.Expression, types: []*celgo.Type{celgo.ListType(types.NewObjectType("JSONPatch"))}}
	m := &mutating{c, c.CompileMutatingEvaluator(e, plugincel.OptionalVariableDeclarations{HasPatchTypes: true}, environment.NewExpressions)}
	for _, err := range m.patch.CompilationErrors() {
		t.Fatal(err)
	}
	return m
}

// request is a request to create or update an object.
type request struct {
	resource  schema.GroupVersionResource
	kind      string
	object    map[string]any
	old       map[string]any // nil for a creation
	namespace corev1.Namespace
}

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// create returns the request to create a pod in a namespace with one label, or none.
func create(annotations map[string]string, label ...string) *request {
	r := &request{resource: pods, kind: "Pod", object: pod(annotations), namespace: corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}}
	if len(label) > 0 {
		r.namespace.Labels = map[string]string{label[0]: label[1]}
	}
	return r
}

func pod(annotations map[string]string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata(annotations)}
}

func metadata(annotations map[string]string) map[string]any {
	if annotations == nil {
		return map[string]any{"name": "p"}
	}
	values := map[string]any{}
	for key, value := range annotations {
		values[key] = value
	}
	return map[string]any{"name": "p", "annotations": values}
}

// attributes returns the request in the form of the API server.
func (r *request) attributes() (*admission.VersionedAttributes, schema.GroupVersionKind) {
	var object, old runtime.Object
	object = &unstructured.Unstructured{Object: r.object}
	operation := admission.Create
	if r.old != nil {
		old, operation = &unstructured.Unstructured{Object: r.old}, admission.Update
	}
	kind := r.resource.GroupVersion().WithKind(r.kind)
	a := admission.NewAttributesRecord(object, old, kind, r.namespace.Name, "p", r.resource, "", operation, nil, false, nil)
	return &admission.VersionedAttributes{Attributes: a, VersionedKind: kind, VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old)}, kind
}

// decide returns the messages of the denials, in the order of the policy, and the errors of
// the evaluation.
func (p *validating) decide(t testing.TB, r *request) (denials []string, errs []error) {
	t.Helper()
	attributes, kind := r.attributes()
	of := plugincel.CreateAdmissionRequest(attributes.Attributes, metav1.GroupVersionResource(r.resource), metav1.GroupVersionKind(kind))
	const budget = celconfig.RuntimeCELCostBudget
	results, rest, err := p.validations.ForInput(t.Context(), attributes, of, plugincel.OptionalVariableBindings{}, &r.namespace, budget)
	if err != nil {
		return nil, []error{err}
	}
	messages, rest, err := p.messages.ForInput(t.Context(), attributes, of, plugincel.OptionalVariableBindings{}, &r.namespace, rest)
	if err != nil {
		return nil, []error{err}
	}
	p.largest = max(p.largest, budget-rest)
	for i, result := range results {
		if result.Error != nil {
			errs = append(errs, result.Error)
			continue
		}
		if result.EvalResult == types.True {
			continue
		}
		if messages[i].Error != nil {
			errs = append(errs, messages[i].Error)
			continue
		}
		message := messages[i].EvalResult.Value().(string)
		if message == "" || len(message) > celconfig.MaxEvaluatedMessageExpressionSizeBytes || strings.Contains(message, "\n") {
			t.Errorf("the API server does not use the message %q", message)
		}
		denials = append(denials, message)
	}
	return denials, errs
}

// patched returns the annotations after a mutation.
func (m *mutating) patched(t testing.TB, r *request) map[string]string {
	t.Helper()
	attributes, kind := r.attributes()
	of := plugincel.CreateAdmissionRequest(attributes.Attributes, metav1.GroupVersionResource(r.resource), metav1.GroupVersionKind(kind))
	result, _, err := m.patch.ForInput(m.compiler.CreateContext(t.Context()), attributes, of, plugincel.OptionalVariableBindings{}, &r.namespace, celconfig.RuntimeCELCostBudget)
	if err != nil || result.Error != nil {
		t.Fatal(err, result.Error)
	}
	annotations, _, err := unstructured.NestedStringMap(r.object, "metadata", "annotations")
	if err != nil {
		t.Fatal(err)
	}
	for it := result.EvalResult.(traits.Lister).Iterator(); it.HasNext() == types.True; {
		native, err := it.Next().ConvertToNative(reflect.TypeFor[*mutation.JSONPatchVal]())
		if err != nil {
			t.Fatal(err)
		}
		patch := native.(*mutation.JSONPatchVal)
		path, isAnnotation := strings.CutPrefix(patch.Path, "/metadata/annotations/")
		switch {
		case patch.Op != "add":
			t.Fatalf("patch %+v", patch)
		case isAnnotation && annotations != nil:
			annotations[strings.ReplaceAll(path, "~1", "/")] = patch.Val.Value().(string)
		case patch.Path == "/metadata/annotations" && annotations == nil:
			annotations = map[string]string{}
		default:
			t.Fatalf("patch %+v", patch)
		}
	}
	return annotations
}

// TestCompiles verifies that the oldest API server that supports this kind of policy has all its functions.
func TestCompiles(t *testing.T) {
	for _, file := range []string{policies.GrammarFile, policies.TenantsFile, policies.FailClosedFile} {
		readValidating(t, file)
	}
	for _, name := range []string{ofClaims, ofClaims + "-warn", ofClasses} {
		readValidating(t, policies.GrammarFile, name)
	}
	readMutating(t, policies.FailClosedFile)
}
