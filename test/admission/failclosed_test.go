package admission

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	validator "github.com/containerd/nri/plugins/default-validator"
	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/test/admission/policies"
)

const (
	required  = "required-plugins.noderesource.dev"
	tolerates = "tolerate-missing-plugins.noderesource.dev"
	both      = "[nri-blkio, nri-blkio-validator]"
)

// TestFailClosed verifies that the mutation adds the plugins to the lists that a pod already has. The API
// server then admits the pod if and only if the runtime requires both plugins for each container.
func TestFailClosed(t *testing.T) {
	m, p := readMutating(t, policies.FailClosedFile), readValidating(t, policies.FailClosedFile)
	const ofDB = required + "/container.db"
	for name, tt := range map[string]struct {
		before, after map[string]string
		isDenied      bool
	}{
		"no annotations":        {nil, map[string]string{required: both}, false},
		"another annotation":    {map[string]string{"a": "b"}, map[string]string{"a": "b", required: both}, false},
		"the same":              {map[string]string{required: both}, map[string]string{required: both}, false},
		"in another order":      {map[string]string{required: `["nri-blkio-validator","nri-blkio"]`}, map[string]string{required: `["nri-blkio-validator","nri-blkio"]`}, false},
		"nothing":               {map[string]string{required: ""}, map[string]string{required: both}, false},
		"an empty list":         {map[string]string{required: " [ ] \n"}, map[string]string{required: both}, false},
		"another plugin":        {map[string]string{required: "[devices]"}, map[string]string{required: "[devices, nri-blkio, nri-blkio-validator]"}, false},
		"one of them":           {map[string]string{required: "['nri-blkio-validator', devices]"}, map[string]string{required: "[nri-blkio-validator, devices, nri-blkio]"}, false},
		"a list of lines":       {map[string]string{required: "- devices\n- \"nri-blkio\"\n"}, map[string]string{required: "[devices, nri-blkio, nri-blkio-validator]"}, false},
		"a similar name":        {map[string]string{required: "[nri-blkio-validator-2, my.nri-blkio]"}, map[string]string{required: "[nri-blkio-validator-2, my.nri-blkio, nri-blkio, nri-blkio-validator]"}, false},
		"a container's":         {map[string]string{ofDB: "[devices]"}, map[string]string{ofDB: "[devices, nri-blkio, nri-blkio-validator]", required: both}, false},
		"the pod's, long form":  {map[string]string{required + "/pod": "[]"}, map[string]string{required + "/pod": both, required: both}, false},
		"names in a comment":    {map[string]string{required: "[] # " + both}, map[string]string{required: "[] # " + both}, true},
		"names in a comment, 2": {map[string]string{ofDB: "- a # nri-blkio\n- nri-blkio-validator"}, map[string]string{ofDB: "- a # nri-blkio\n- nri-blkio-validator", required: both}, true},
		"no list":               {map[string]string{required: "nri-blkio nri-blkio-validator"}, map[string]string{required: "nri-blkio nri-blkio-validator"}, true},
		"tolerates":             {map[string]string{tolerates: "true"}, map[string]string{tolerates: "true", required: both}, true},
		"a container tolerates": {map[string]string{tolerates + "/container.db": "1"}, map[string]string{tolerates + "/container.db": "1", required: both}, true},
	} {
		got := m.patched(t, create(tt.before))
		if diff := cmp.Diff(tt.after, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		if again := m.patched(t, create(got)); !cmp.Equal(got, again) {
			t.Errorf("%s: %q, patched again %q", name, got, again)
		}
		denials, errs := p.decide(t, create(got))
		if len(errs) > 0 || len(denials) > 0 != tt.isDenied {
			t.Errorf("%s: %q, %v", name, denials, errs)
		}
		if !tt.isDenied && !isRequired(t, got) {
			t.Errorf("%s: the runtime does not require the plugins with %q", name, got)
		}
	}
}

// isRequired reports whether the runtime rejects containers db and web of a pod while either
// plugin is missing, and accepts them with the plugins.
func isRequired(t *testing.T, annotations map[string]string) bool {
	t.Helper()
	v := validator.NewDefaultValidator(&validator.DefaultValidatorConfig{Enable: true, TolerateMissingAnnotation: tolerates})
	accepts := func(container string, plugins ...string) bool {
		request := &api.ValidateContainerAdjustmentRequest{Pod: &api.PodSandbox{Annotations: annotations}, Container: &api.Container{Name: container}}
		for _, name := range append(plugins, "devices", "nri-blkio-validator-2", "my.nri-blkio") {
			request.Plugins = append(request.Plugins, &api.PluginInstance{Name: name})
		}
		return v.ValidateContainerAdjustment(t.Context(), request) == nil
	}
	for _, container := range []string{"db", "web"} {
		if accepts(container, "nri-blkio") || accepts(container, "nri-blkio-validator") || !accepts(container, policies.Plugins()...) {
			return false
		}
	}
	return true
}

// TestFailClosedMessages verifies what the API server rejects without the mutation, and after an update.
func TestFailClosedMessages(t *testing.T) {
	p := readValidating(t, policies.FailClosedFile)
	for _, tt := range []struct {
		before, after map[string]string
		want          []string
	}{
		{nil, nil, []string{`pods of namespace tenant need the annotation required-plugins.noderesource.dev: "[nri-blkio, nri-blkio-validator]"`}},
		{nil, map[string]string{required: "[nri-blkio]"}, []string{
			`required-plugins.noderesource.dev: pods of namespace tenant need a list with these plugins (write "[nri-blkio, nri-blkio-validator]")`,
		}},
		{nil, map[string]string{required: both, tolerates: "true"}, []string{
			"tolerate-missing-plugins.noderesource.dev: pods of namespace tenant may not have this annotation (remove it)",
		}},
		// Updates of pods that are older than the label.
		{map[string]string{"a": "b"}, nil, nil},
		{map[string]string{required: "[]", tolerates: "1"}, map[string]string{required: "[]", tolerates: "1", "a": "b"}, nil},
		// Updates that take the requirement away.
		{map[string]string{required: both}, map[string]string{"a": "b"}, []string{`pods of namespace tenant need the annotation required-plugins.noderesource.dev: "[nri-blkio, nri-blkio-validator]"`}},
		{map[string]string{required: both}, map[string]string{required: both, required + "/container.db": "[]"}, []string{
			`required-plugins.noderesource.dev/container.db: pods of namespace tenant need a list with these plugins (write "[nri-blkio, nri-blkio-validator]")`,
		}},
	} {
		r := create(tt.after)
		if tt.before != nil {
			r.old = pod(tt.before)
		}
		denials, errs := p.decide(t, r)
		if diff := cmp.Diff(tt.want, denials); diff != "" || len(errs) > 0 {
			t.Errorf("%q, then %q: %v, -want +got:\n%s", tt.before, tt.after, errs, diff)
		}
	}
}
