package node_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
)

// pod is a pod of the kubelet, and its document of the API server.
type pod struct {
	w                    *world
	namespace, name, uid string
	cgroup               string // "" for a pod without one
	handler              string
	annotations, labels  map[string]string
	sandboxes            []*sandbox
	document             *podfacts.Facts
	claims               []claim
}

type sandbox struct {
	*pod
	id         string
	ready      bool
	told       map[string]string // the annotations that the runtime reports
	containers []*container
}

// container is a container of the runtime.
type container struct {
	sandbox      *sandbox
	id, name     string
	cgroup       string
	cgroupsPath  string // of the OCI spec; "" for that of cgroup
	mounts       []inventory.Mount
	devices      []inventory.Device
	actual       map[string]string // where mounts really lead to, by their destination
	memory       int64
	unified      map[string]string
	mark         string // an annotation of the OCI spec, see plan.Mark
	state        node.State
	pid, created int
}

func (s *sandbox) message() *node.Sandbox {
	sb := &node.Sandbox{ID: s.id, UID: s.uid, Handler: s.handler, Facts: podfacts.Facts{Name: s.name, Namespace: s.namespace, Labels: maps.Clone(s.labels), Annotations: maps.Clone(s.told)}}
	if s.cgroup != "" {
		sb.Cgroup = "/" + s.cgroup
	}
	return sb
}

func (c *container) message() *node.Container {
	parent := "kubepods-" + c.sandbox.uid + ".slice"
	if c.sandbox.cgroup != "" {
		parent = path.Base(c.sandbox.cgroup)
	}
	spec := &inventory.Spec{Name: c.name, Mounts: c.mounts, Devices: c.devices}
	return &node.Container{
		ID: c.id, Name: c.name, Sandbox: c.sandbox.id, Cgroup: cmp.Or(c.cgroupsPath, parent+":cri-containerd:"+c.id), PID: max(c.pid, 0), State: c.state, CreatedAt: int64(c.created),
		OCI: node.OCI{MemoryMax: c.memory, Unified: maps.Clone(c.unified), Mark: c.mark},
		Spec: func() *inventory.Spec {
			copied := *spec
			copied.Mounts, copied.Devices = slices.Clone(spec.Mounts), slices.Clone(spec.Devices)
			return &copied
		},
	}
}

// processMounts returns the mounts of its process.
func (c *container) processMounts() []processMount {
	out := []processMount{{blkio.ProcessMount{Mountpoint: "/", IsRoot: true}, "/var/lib/containerd"}}
	for _, m := range c.mounts {
		out = append(out, processMount{blkio.ProcessMount{Mountpoint: m.Destination, ReadOnly: m.IsReadOnly()}, cmp.Or(c.actual[m.Destination], m.Source)})
	}
	for _, at := range slices.Sorted(maps.Keys(c.actual)) {
		if !slices.ContainsFunc(c.mounts, func(m inventory.Mount) bool { return m.Destination == at }) {
			out = append(out, processMount{blkio.ProcessMount{Mountpoint: at}, c.actual[at]})
		}
	}
	return out
}

// podNamed returns a pod by NAMESPACE/NAME, or by NAME in the namespace prod.
func (w *world) podNamed(name string) *pod {
	if !strings.Contains(name, "/") {
		name = "prod/" + name
	}
	return w.pods[name]
}

func (w *world) mustPod(name string) *pod {
	p := w.podNamed(name)
	if p == nil {
		w.ts.Fatalf("unknown pod %s", name)
	}
	return p
}

// newPod makes a pod and its first sandbox, of these properties: KEY=VALUE of an annotation of limits, such as containers,
// weight.KEY=VALUE, annotation.KEY=VALUE, label.KEY=VALUE, qos=CLASS, labels=COUNT, handler=NAME, cgroup=none.
func (w *world) newPod(name string, properties []string) *pod {
	namespace, base, isFull := strings.Cut(name, "/")
	if !isFull {
		namespace, base = "prod", name
	}
	w.reachable()
	w.ids++
	p := &pod{w: w, namespace: namespace, name: base, uid: fmt.Sprint("u", w.ids), annotations: map[string]string{}, labels: map[string]string{}}
	p.cgroup = "kubepods.slice/kubepods-pod" + p.uid + ".slice"
	for _, property := range properties {
		key, value, _ := strings.Cut(property, "=")
		switch {
		case key == "qos":
			p.cgroup = "kubepods.slice/kubepods-" + value + ".slice/kubepods-" + value + "-pod" + p.uid + ".slice"
		case key == "handler":
			p.handler = value
		case key == "labels": // so many more
			count, _ := strconv.Atoi(value)
			for i := range count {
				p.labels[fmt.Sprint("label-", i)] = strings.Repeat("x", 60)
			}
		case key == "cgroup":
			p.cgroup = ""
		case strings.HasPrefix(key, "label."):
			p.labels[strings.TrimPrefix(key, "label.")] = value
		default:
			p.annotations = pairs(p.annotations, []string{property}, annotationKey)
		}
	}
	if p.cgroup != "" {
		w.kernel.Make(p.cgroup, true)
	}
	key := namespace + "/" + base
	w.pods[key] = p
	w.order = append(slices.DeleteFunc(w.order, func(o string) bool { return o == key }), key)
	p.newSandbox()
	return p
}

// annotationKey completes a key: "containers" is one of limits, and "weight.containers" one of weights.
func annotationKey(key string) string {
	if full, isFull := strings.CutPrefix(key, "annotation."); isFull {
		return full
	}
	if weight, isWeight := strings.CutPrefix(key, "weight."); isWeight {
		return weightKey + weight
	}
	return limitsKey + key
}

func (p *pod) newSandbox() {
	p.w.ids++
	for _, old := range p.sandboxes {
		old.ready = false
	}
	told := p.annotations
	if p.document != nil && p.document.Annotations != nil {
		told = p.document.Annotations
	}
	p.sandboxes = append(p.sandboxes, &sandbox{pod: p, id: fmt.Sprint("sb", p.w.ids), ready: true, told: maps.Clone(told)})
}

func (p *pod) current() *sandbox { return p.sandboxes[len(p.sandboxes)-1] }

// containerNamed returns the newest container of a name, nil if there is none.
func (p *pod) containerNamed(name string) *container {
	for _, sb := range slices.Backward(p.sandboxes) {
		for _, c := range slices.Backward(sb.containers) {
			if c.name == name {
				return c
			}
		}
	}
	return nil
}

// oldestNamed returns the oldest container of a name, which must be there.
func (p *pod) oldestNamed(name string) *container {
	for _, sb := range p.sandboxes {
		for _, c := range sb.containers {
			if c.name == name {
				return c
			}
		}
	}
	p.w.ts.Fatalf("pod %s has no container %s", p.name, name)
	return nil
}

func (w *world) mustContainer(pod, name string) *container {
	c := w.mustPod(pod).containerNamed(name)
	if c == nil {
		w.ts.Fatalf("pod %s has no container %s", pod, name)
	}
	return c
}

// newContainer makes a container of a pod from the arguments POD NAME [VALUE] [--mount SOURCE:DESTINATION[:OPTION,...]]
// [--device PATH=DISK] [--memory BYTES] [--unified FILE=TEXT]. VALUE is the annotation of a pod that is made here.
func (w *world) newContainer(args []string) *container {
	p := w.podNamed(args[0])
	if p == nil {
		var properties []string
		if len(args) > 2 && !strings.HasPrefix(args[2], "--") {
			properties = []string{"containers=" + args[2]}
		}
		p = w.newPod(args[0], properties)
	}
	w.ids++
	c := &container{sandbox: p.current(), name: args[1], id: fmt.Sprint("c", w.ids), state: node.Created, created: w.ids, actual: map[string]string{}, unified: map[string]string{}}
	if c.cgroup = p.cgroup; c.cgroup == "" {
		c.cgroup = "kubepods.slice/kubepods-" + p.uid + ".slice"
	}
	c.cgroup += "/cri-containerd-" + c.id + ".scope"
	for i := 2; i+1 < len(args); i++ {
		if strings.HasPrefix(args[i], "--") {
			w.ts.Check(c.set(args[i], args[i+1]))
			i++
		}
	}
	return c
}

func (c *container) set(option, value string) (err error) {
	switch option {
	case "--mount":
		part := strings.Split(value, ":")
		m := inventory.Mount{Type: "bind", Source: part[0], Destination: part[1], Options: inventory.ParseOptions("rbind", "rw")}
		if len(part) > 2 {
			m.Options = inventory.ParseOptions(strings.Split(part[2], ",")...)
		}
		c.mounts = append(c.mounts, m)
	case "--mounts": // many of them, on the disk of /
		count, _ := strconv.Atoi(value)
		for i := range count {
			c.mounts = append(c.mounts, inventory.Mount{Type: "bind", Source: fmt.Sprint("/srv/", i), Destination: fmt.Sprint("/m/", i), Options: inventory.ParseOptions("rbind")})
		}
	case "--device":
		at, name, _ := strings.Cut(value, "=")
		disk, _ := c.sandbox.w.disks.Disk(name)
		c.devices = append(c.devices, inventory.Device{Path: at, Type: "b", Dev: disk.Dev})
	case "--cgroups-path":
		c.cgroupsPath = value
	case "--pid":
		c.pid, err = strconv.Atoi(value)
	case "--memory":
		c.memory, err = strconv.ParseInt(value, 10, 64)
	case "--unified":
		file, text, _ := strings.Cut(value, "=")
		c.unified[file] = text
	default:
		err = errors.New("unknown option " + option)
	}
	return err
}

// create is the event of a creation. containerd undoes one that is rejected.
func (w *world) create(c *container) error {
	c.sandbox.containers = append(c.sandbox.containers, c)
	if !w.reachable() {
		return nil
	}
	sb := c.sandbox.message()
	if !w.node.Enter(sb, c.message(), node.Created) {
		return nil
	}
	err := within(func(ctx context.Context) error {
		spec, decided, err := w.node.Create(ctx, sb, c.message(), w.isCRIO)
		maps.Copy(c.unified, plan.Unified(spec))
		if decided {
			c.mark = plan.Mark(c.id, spec)
		}
		return err
	})
	if err != nil && w.isSilent {
		c.sandbox.containers = slices.DeleteFunc(c.sandbox.containers, func(o *container) bool { return o == c })
	} else if err != nil {
		w.node.Stopped(c.sandbox.id, c.id)
		w.remove(c)
	}
	return err
}

// place makes the cgroup of a container, with its first process.
func (w *world) place(c *container) {
	w.kernel.Make(c.cgroup, true)
	w.writeSpec(c)
	w.ids++
	if c.state = node.Running; c.pid >= 0 { // a negative one is reported as none
		c.pid = 1000 + w.ids
	}
	w.show(func(v *views) { v.mounts[c.pid] = c.processMounts() })
}

// writeSpec writes the files of the OCI spec, as the runtime does.
func (w *world) writeSpec(c *container) {
	w.ts.Check(w.kernel.SetLimits(c.cgroup, c.unified[blkio.IOMax]))
	weight := c.unified[blkio.IOWeight]
	if weight == "" {
		weight = "100"
	}
	w.kernel.Replace(c.cgroup, "io.weight", "default "+weight+"\n")
}

// start is the event of a start. A container that is rejected is ended and removed.
func (w *world) start(c *container) error {
	w.place(c)
	if !w.reachable() {
		return nil
	}
	sb := c.sandbox.message()
	if !w.node.Enter(sb, c.message(), node.Running) {
		return nil
	}
	err := within(func(ctx context.Context) error { return w.node.Start(ctx, sb, c.message(), !w.isCRIO) })
	if err != nil && !w.isCRIO && !w.isSilent {
		w.exit(c)
		w.remove(c)
	}
	return err
}

// exit is the end of a container: of its processes, then of its cgroup, and then the event.
func (w *world) exit(c *container) {
	w.kernel.Empty(c.cgroup)
	synctest.Wait()
	w.kernel.Remove(c.cgroup)
	if c.state = node.Stopped; w.connected {
		w.node.Stopped(c.sandbox.id, c.id)
	}
}

func (w *world) remove(c *container) {
	c.sandbox.containers = slices.DeleteFunc(c.sandbox.containers, func(o *container) bool { return o == c })
	if w.connected {
		w.node.Removed(c.sandbox.id, c.id)
	}
}

func (w *world) removeSandbox(sb *sandbox) {
	for _, c := range slices.Clone(sb.containers) {
		if c.state == node.Running {
			w.exit(c)
		}
		w.remove(c)
	}
	sb.sandboxes = slices.DeleteFunc(sb.sandboxes, func(o *sandbox) bool { return o == sb })
	if w.connected {
		w.node.RemovedPod(sb.id)
	}
}

func (w *world) removePod(p *pod) {
	for _, sb := range slices.Clone(p.sandboxes) {
		w.removeSandbox(sb)
	}
	w.kernel.Remove(p.cgroup)
	delete(w.pods, p.namespace+"/"+p.name)
	w.order = slices.DeleteFunc(w.order, func(name string) bool { return w.pods[name] == nil })
}

// answer keeps the refusal of a container, and fails the script if the answer is not the expected one.
func (w *world) answer(what string, neg bool, err error) {
	if w.refusal = err; (err != nil) != neg {
		w.ts.Fatalf("%s: the answer is %v", what, err)
	}
}
