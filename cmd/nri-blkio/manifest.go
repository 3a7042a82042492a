package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// manifest is one pod of a file, or the pod template of a workload.
type manifest struct {
	Kind, Namespace, Name string
	Annotations           map[string]string
	Spec                  corev1.PodSpec
}

// object is the part of a Kubernetes object that leads to its pod template.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Template    *corev1.PodTemplateSpec `json:"template"`
		JobTemplate *struct {
			Spec struct {
				Template *corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"`
		VolumeClaimTemplates []corev1.PersistentVolumeClaim `json:"volumeClaimTemplates"`
	} `json:"spec"`
	Items []json.RawMessage `json:"items"`
}

// readManifests decodes the pods of a YAML or JSON stream. Objects of other
// kinds are left out, and named in others. Unknown fields are not looked at:
// the API server may be newer than this program.
func readManifests(r io.Reader) (pods []manifest, others []string, err error) {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for n := 1; ; n++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return pods, others, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("document %d: %w", n, err)
		}
		found, rest, err := decodeDocument(doc)
		if err != nil {
			return nil, nil, fmt.Errorf("document %d: %w", n, err)
		}
		pods, others = append(pods, found...), append(others, rest...)
	}
}

func decodeDocument(doc []byte) (pods []manifest, others []string, err error) {
	data, err := yaml.YAMLToJSON(doc)
	if err != nil {
		return nil, nil, err
	}
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return nil, nil, nil // comments, or nothing between two "---"
	}
	return decodeObject(data)
}

func decodeObject(data []byte) (pods []manifest, others []string, err error) {
	var meta struct {
		metav1.TypeMeta `json:",inline"`
	}
	if err := json.Unmarshal(data, &meta); err != nil {
		return nil, nil, err
	}
	switch meta.Kind {
	case "":
		return nil, nil, errors.New("no kind: this is no Kubernetes object")
	case "Pod":
		m, err := decodePod(data)
		return []manifest{m}, nil, err
	case "List", "PodList":
		return decodeList(data)
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob", "PodTemplate":
		m, err := decodeWorkload(data)
		return []manifest{m}, nil, err
	}
	return nil, []string{meta.Kind}, nil
}

func decodePod(data []byte) (manifest, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(data, &pod); err != nil {
		return manifest{}, fmt.Errorf("decode Pod: %w", err)
	}
	return newManifest("Pod", &pod.ObjectMeta, pod.Annotations, pod.Spec), nil
}

func decodeList(data []byte) (pods []manifest, others []string, err error) {
	var list object
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, nil, fmt.Errorf("decode list: %w", err)
	}
	for i, item := range list.Items {
		found, rest, err := decodeObject(item)
		if err != nil {
			return nil, nil, fmt.Errorf("item %d: %w", i+1, err)
		}
		pods, others = append(pods, found...), append(others, rest...)
	}
	return pods, others, nil
}

func decodeWorkload(data []byte) (manifest, error) {
	var o object
	if err := json.Unmarshal(data, &o); err != nil {
		return manifest{}, fmt.Errorf("decode workload: %w", err)
	}
	template := o.Spec.Template
	if o.Spec.JobTemplate != nil {
		template = o.Spec.JobTemplate.Spec.Template
	}
	if template == nil {
		return manifest{}, fmt.Errorf("%s %s has no pod template", o.Kind, path.Join(o.Namespace, o.Name))
	}
	addClaims(&template.Spec, o.Spec.VolumeClaimTemplates)
	return newManifest(o.Kind, &o.ObjectMeta, template.Annotations, template.Spec), nil
}

// addClaims adds the volumes that the StatefulSet controller adds to a pod: one for each
// claim template. A template replaces a volume of the same name.
func addClaims(spec *corev1.PodSpec, templates []corev1.PersistentVolumeClaim) {
	for _, claim := range templates {
		spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == claim.Name })
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}})
	}
}

func newManifest(kind string, meta *metav1.ObjectMeta, annotations map[string]string, spec corev1.PodSpec) manifest {
	m := manifest{Kind: kind, Namespace: meta.Namespace, Name: meta.Name, Annotations: annotations, Spec: spec}
	if m.Namespace == "" {
		m.Namespace = metav1.NamespaceDefault
	}
	if m.Name == "" {
		m.Name = meta.GenerateName
	}
	return m
}
