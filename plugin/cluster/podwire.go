package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// A pod can have 80,000 mounts or 20,000 containers in the 1.5 MB that the API server stores. As a corev1.Pod it takes ten
// times as much memory, and the pods of a node arrive at once. So what is kept of a pod is read from its protobuf message,
// and what a document cannot have is counted there and not built.

// Numbers of fields, see generated.proto in k8s.io/api/core/v1, and in apis/meta/v1 and runtime of k8s.io/apimachinery/pkg.
const (
	unknownRaw protowire.Number = 2

	eventType, eventObject, extensionRaw protowire.Number = 1, 2, 1

	listMetadata, listItems, listVersion protowire.Number = 1, 2, 2

	podMetadata, podSpec protowire.Number = 1, 2

	metaName, metaNamespace, metaUID, metaVersion  protowire.Number = 1, 3, 5, 6
	metaCreated, metaDeleted, metaLabels, metaNote protowire.Number = 8, 9, 11, 12
	metaOwners                                     protowire.Number = 13

	ownerKind, ownerName, ownerUID, ownerVersion, ownerController protowire.Number = 1, 3, 4, 5, 6

	specVolumes, specContainers, specInit, specEphemeral protowire.Number = 1, 2, 20, 34

	volumeName, volumeSource, sourceClaim, sourceEphemeral, sourceClaimName protowire.Number = 1, 2, 10, 29, 1

	sourceEmptyDir, sourceGitRepo, sourceSecret, sourceDownwardAPI, sourceConfigMap, sourceProjected protowire.Number = 2, 5, 6, 16, 19, 26

	ephemeralCommon, containerName, containerMounts, containerDevices protowire.Number = 1, 1, 9, 21

	placeName, mountPath, devicePath protowire.Number = 1, 3, 2

	entryKey, entryValue protowire.Number = 1, 2
)

// envelope begins the message of an object: a runtime.Unknown with the message of its kind follows.
var envelope = []byte("k8s\x00")

// podObject is a pod as the API server reports it, with what is kept of it. It does not change.
type podObject struct {
	metav1.TypeMeta
	metav1.ObjectMeta      // names and versions only, and the annotations of a bookmark
	pod               *pod // nil if its UID is not that of a pod of the runtime
}

// DeepCopyObject implements runtime.Object.
func (o *podObject) DeepCopyObject() runtime.Object { return o }

// eventOf returns the type of an event of a watch, and the message of its object.
func eventOf(frame []byte) (typ string, object []byte, err error) {
	var w wire
	typ, object = string(w.field(frame, eventType)), w.field(w.field(frame, eventObject), extensionRaw)
	return typ, object, w.err
}

func readPodList(body io.Reader, each func(runtime.Object)) (version string, err error) {
	list, err := listOf(bufio.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("read a list of pods: %w", err)
	}
	from, data := bufio.NewReader(list), []byte(nil)
	for {
		num, size, err := nextField(from)
		switch {
		case errors.Is(err, io.EOF) && list.N == 0:
			return version, nil
		case err == nil && size > maxFrame:
			err = fmt.Errorf("a pod of %d bytes (maximum %d)", size, maxFrame)
		case err == nil:
			data = slices.Grow(data[:0], int(size))[:size] // texts are copied from it
			_, err = io.ReadFull(from, data)
		}
		if err == nil {
			var w wire
			switch num {
			case listMetadata:
				version, err = string(w.field(data, listVersion)), w.err
			case listItems:
				var o *podObject
				if o, err = decodePod(data); err == nil {
					each(o)
				}
			}
		}
		if err != nil {
			return "", fmt.Errorf("read a list of pods: %w", unexpected(err))
		}
	}
}

func listOf(from *bufio.Reader) (*io.LimitedReader, error) {
	start := make([]byte, len(envelope))
	if _, err := io.ReadFull(from, start); err != nil || !bytes.Equal(start, envelope) {
		return nil, errors.Join(errors.New("no protobuf"), err)
	}
	for {
		num, size, err := nextField(from)
		if err != nil || size > math.MaxInt64 {
			return nil, unexpected(cmp.Or(err, errTooLong))
		}
		out := &io.LimitedReader{R: from, N: int64(size)}
		if num == unknownRaw {
			return out, nil
		}
		if _, err := io.Copy(io.Discard, out); err != nil {
			return nil, err
		}
	}
}

var errTooLong = errors.New("a field is too long")

// nextField reads the number and the size of a field. The error is [io.EOF] if there is none.
func nextField(from *bufio.Reader) (num protowire.Number, size uint64, err error) {
	tag, err := binary.ReadUvarint(from)
	if err != nil {
		return 0, 0, err
	}
	num, typ := protowire.DecodeTag(tag)
	if typ != protowire.BytesType {
		return 0, 0, fmt.Errorf("field %d has the type %d", num, typ)
	}
	size, err = binary.ReadUvarint(from)
	return num, size, unexpected(err)
}

// unexpected returns an error of an answer that ends too early for [io.EOF].
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func podEnvelope(data []byte) (*podObject, error) {
	data, ok := bytes.CutPrefix(data, envelope)
	if !ok {
		return nil, fmt.Errorf("decode a pod: no protobuf")
	}
	var w wire
	raw := w.field(data, unknownRaw)
	if w.err != nil {
		return nil, fmt.Errorf("decode a pod: %w", w.err)
	}
	return decodePod(raw)
}

func decodePod(data []byte) (*podObject, error) {
	r := podReader{out: &podObject{}, cause: map[string]string{}}
	var spec []byte
	for num, value := range r.fields(data) {
		switch num {
		case podMetadata:
			r.metadata(value)
		case podSpec:
			spec = value
		}
	}
	r.volumes(spec)
	r.places(spec)
	if r.err != nil {
		return nil, fmt.Errorf("decode a pod: %w", r.err)
	}
	r.out.pod = newPod(&r)
	if _, isEnd := r.marks[metav1.InitialEventsAnnotationKey]; isEnd {
		r.out.Annotations = r.marks
	}
	return r.out, nil
}

// podReader reads one pod.
type podReader struct {
	wire
	out   *podObject
	marks map[string]string // annotations of Kubernetes that matter
	facts podfacts.Facts
	index map[string]int                            // of the volumes, by name
	cause map[string]string                         // why a part is too large, by the part
	size  struct{ annotations, labels, places int } // bytes of texts, and a number
}

func (r *podReader) metadata(data []byte) {
	r.facts.Annotations, r.facts.Labels, r.marks = map[string]string{}, map[string]string{}, map[string]string{}
	for num, value := range r.fields(data) {
		switch num {
		case metaName:
			r.out.Name = string(value)
		case metaNamespace:
			r.out.Namespace = string(value)
		case metaUID:
			r.out.UID = types.UID(value)
		case metaVersion:
			r.out.ResourceVersion = string(value)
		case metaCreated:
			r.err = r.out.CreationTimestamp.Unmarshal(value)
		case metaDeleted:
			r.out.DeletionTimestamp = &metav1.Time{}
			r.err = r.out.DeletionTimestamp.Unmarshal(value)
		case metaLabels:
			r.label(value)
		case metaNote:
			r.annotation(value)
		case metaOwners:
			r.owner(value)
		}
	}
}

// owner keeps the object that controls this pod. An object has at most one reference to a controller.
func (r *podReader) owner(reference []byte) {
	if !r.isSet(reference, ownerController) {
		return
	}
	o := podfacts.Owner{
		Name: string(r.field(reference, ownerName)), UID: string(r.field(reference, ownerUID)),
		IsPod: string(r.field(reference, ownerKind)) == "Pod" && string(r.field(reference, ownerVersion)) == "v1",
	}
	if poddoc.IsName(o.Name) && mailbox.IsUID(o.UID) {
		r.facts.Owner = o
	}
}

// label keeps a label as long as a document can have all.
func (r *podReader) label(entry []byte) {
	if r.size.labels > poddoc.MaxLabelBytes {
		return
	}
	key, value := r.field(entry, entryKey), r.field(entry, entryValue)
	if r.size.labels += len(key) + len(value); r.size.labels > poddoc.MaxLabelBytes {
		r.cause[podfacts.PartLabels] = fmt.Sprintf("more than %d bytes", poddoc.MaxLabelBytes)
		return
	}
	r.facts.Labels[string(key)] = string(value)
}

// annotation keeps annotations of this domain, and those of Kubernetes that matter.
func (r *podReader) annotation(entry []byte) {
	switch key, value := string(r.field(entry, entryKey)), r.field(entry, entryValue); {
	case annotation.IsKey(key):
		r.own(key, value)
	case key == mirror, key == metav1.InitialEventsAnnotationKey:
		r.marks[key] = string(value)
	}
}

// own keeps an annotation of this domain as long as a document can have all.
func (r *podReader) own(key string, value []byte) {
	r.size.annotations += len(key) + len(value)
	switch {
	case r.size.annotations > podfacts.MaxAnnotationBytes:
		r.cause[podfacts.PartAnnotations] = fmt.Sprintf("more than %d bytes", podfacts.MaxAnnotationBytes)
	case len(r.facts.Annotations) == podfacts.MaxAnnotations:
		r.cause[podfacts.PartAnnotations] = fmt.Sprintf("more than %d of them", podfacts.MaxAnnotations)
	default:
		r.facts.Annotations[key] = string(value)
	}
}

// volumes reads the volumes whose name the runtime does not see.
func (r *podReader) volumes(spec []byte) {
	r.index, r.facts.Volumes = map[string]int{}, []policy.Volume{}
	for num, value := range r.fields(spec) {
		if num != specVolumes {
			continue
		}
		v, ok := r.volume(value)
		if !ok {
			continue
		}
		if len(r.index) == poddoc.MaxVolumes {
			r.cause[podfacts.PartVolumes] = fmt.Sprintf("more than %d of them", poddoc.MaxVolumes)
			return
		}
		r.index[v.Name] = len(r.facts.Volumes)
		r.facts.Volumes = append(r.facts.Volumes, v)
	}
}

// volume returns a volume, and false for one whose name is in the paths of its mounts on the node, or that cannot be.
func (r *podReader) volume(data []byte) (policy.Volume, bool) {
	v, isSeen, isClaim := policy.Volume{}, false, false
	for num, value := range r.fields(data) {
		switch num {
		case volumeName:
			v.Name = string(value)
		case volumeSource:
			for num, source := range r.fields(value) {
				switch num {
				case sourceEmptyDir, sourceGitRepo, sourceSecret, sourceDownwardAPI, sourceConfigMap, sourceProjected:
					isSeen = true
				case sourceClaim:
					v.Claim, isClaim = string(r.field(source, sourceClaimName)), true
				case sourceEphemeral:
					v.Claim, isClaim = r.out.Name+"-"+v.Name, true // see VolumeClaimName in component-helpers/storage/ephemeral
				}
			}
		}
	}
	// Pods are not validated for the names of their claims.
	return v, !isSeen && annotation.IsLabel(v.Name) && (!isClaim || poddoc.IsName(v.Claim))
}

// places reads where the containers of all kinds have the volumes.
func (r *podReader) places(spec []byte) {
	if len(r.index) == 0 || r.cause[podfacts.PartVolumes] != "" {
		return
	}
	for num, value := range r.fields(spec) {
		switch num {
		case specEphemeral:
			r.container(r.field(value, ephemeralCommon))
		case specContainers, specInit:
			r.container(value)
		}
		if r.size.places > poddoc.MaxPlaces {
			r.cause[podfacts.PartVolumes] = fmt.Sprintf("more than %d mounts", poddoc.MaxPlaces)
			return
		}
	}
}

// container reads the places of one container, at most as many as a document can have.
func (r *podReader) container(data []byte) {
	name := "" // the first field, and read once there is a place
	for num, value := range r.fields(data) {
		path := mountPath
		switch num {
		case containerDevices:
			path = devicePath
		case containerMounts:
		default:
			continue
		}
		i, ok := r.index[string(r.field(value, placeName))]
		if !ok {
			continue
		}
		if name == "" {
			name = string(r.field(data, containerName))
		}
		if r.size.places++; r.size.places > poddoc.MaxPlaces {
			return
		}
		r.facts.Volumes[i].Places = append(r.facts.Volumes[i].Places, policy.Place{Container: name, Path: string(r.field(value, path))})
	}
}
