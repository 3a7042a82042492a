package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nri-blkio/nri-blkio/plugin/node"
)

// creations are the commands of the kubelet that make pods, and containers that have not started. "! create" expects a rejection.
func creations() map[string]command {
	return map[string]command{
		"pod": func(w *world, neg bool, args []string) {
			w.check("pod POD [KEY=VALUE]...", neg, args)
			w.newPod(args[0], args[1:])
		},
		"same-cgroup": func(w *world, neg bool, args []string) {
			w.check("same-cgroup POD OTHER [KEY=VALUE]...", neg, args)
			w.newPod(args[0], args[2:]).cgroup = w.mustPod(args[1]).cgroup
		},
		"reported": func(w *world, neg bool, args []string) { // the annotations that the runtime reports of the next sandbox
			w.check("reported POD KEY=VALUE...", neg, args)
			p := w.mustPod(args[0])
			p.annotations = pairs(p.annotations, args[1:], annotationKey)
		},
		"create": func(w *world, neg bool, args []string) {
			w.check("create POD CONTAINER [VALUE] [--mount SOURCE:DESTINATION[:OPTIONS]]...", false, args)
			w.answer("create", neg, w.create(w.newContainer(args)))
		},
		"begin-create": func(w *world, neg bool, args []string) { // of which the answer comes later, with "answer"
			w.check("begin-create POD CONTAINER [VALUE] [--mount SOURCE:DESTINATION[:OPTIONS]]...", neg, args)
			c, answer := w.newContainer(args), make(chan error, 1)
			w.pending = answer
			go func() { answer <- w.create(c) }()
		},
		"begin-start": func(w *world, neg bool, args []string) {
			w.check("begin-start POD CONTAINER", neg, args)
			c, answer := w.mustContainer(args[0], args[1]), make(chan error, 1)
			w.pending = answer
			go func() { answer <- w.start(c) }()
		},
		"answer": func(w *world, neg bool, args []string) {
			w.check("answer", false, args)
			w.answer("the call", neg, <-w.pending)
		},
		"create-silent": func(w *world, neg bool, args []string) { // the runtime reports no end of one that is rejected
			w.check("create-silent POD CONTAINER [VALUE]", false, args)
			w.isSilent = true
			w.answer("create", neg, w.create(w.newContainer(args)))
			w.isSilent = false
		},
		"sandbox": func(w *world, neg bool, args []string) {
			w.check("sandbox POD", neg, args)
			w.mustPod(args[0]).newSandbox()
		},
	}
}

// starts are the commands that start containers. "!" expects a rejection.
func starts() map[string]command {
	return map[string]command{
		"start": func(w *world, neg bool, args []string) {
			w.check("start POD CONTAINER", false, args)
			w.answer("start", neg, w.start(w.mustContainer(args[0], args[1])))
		},
		"run": func(w *world, neg bool, args []string) {
			w.check("run POD CONTAINER [VALUE] [--mount SOURCE:DESTINATION[:OPTIONS]]...", false, args)
			c := w.newContainer(args)
			err := w.create(c)
			if err == nil {
				err = w.start(c)
			}
			w.answer("run", neg, err)
		},
		"run-many": func(w *world, neg bool, args []string) { // as run, of pods POD-1, POD-2, ...
			w.check("run-many COUNT POD CONTAINER [VALUE] [--mount SOURCE:DESTINATION[:OPTIONS]]...", neg, args)
			count, err := strconv.Atoi(args[0])
			w.ts.Check(err)
			for i := range count {
				c := w.newContainer(append([]string{fmt.Sprint(args[1], "-", i+1)}, args[2:]...))
				w.answer("run", neg, errors.Join(w.create(c), w.start(c)))
			}
		},
		"start-unseen": func(w *world, neg bool, args []string) { // no plugin listened when it was created
			w.check("start-unseen POD CONTAINER [VALUE] [--mount SOURCE:DESTINATION[:OPTIONS]]...", false, args)
			c := w.newContainer(args)
			c.sandbox.containers = append(c.sandbox.containers, c)
			w.answer("start", neg, w.start(c))
		},
		"start-unheard": func(w *world, neg bool, args []string) { // the runtime does not get the answer, and the container runs
			w.check("start-unheard POD CONTAINER [VALUE]", false, args)
			c := w.newContainer(args)
			c.sandbox.containers = append(c.sandbox.containers, c)
			w.isSilent = true
			w.answer("start", neg, w.start(c))
			w.isSilent = false
		},
		"start-unplaced": func(w *world, neg bool, args []string) { // restored from a checkpoint: its cgroup comes later
			w.check("start-unplaced POD CONTAINER", false, args)
			c := w.newContainer(args)
			c.sandbox.containers = append(c.sandbox.containers, c)
			w.reachable()
			c.state = node.Running
			if w.passesBy(c.sandbox.message(), c.message(), node.Running) {
				return
			}
			w.answer("start", neg, within(func(ctx context.Context) error { return w.node.Start(ctx, c.sandbox.message(), c.message(), true) }))
		},
		"repeat-start": func(w *world, neg bool, args []string) { // the event alone
			w.check("repeat-start POD CONTAINER", false, args)
			c := w.mustContainer(args[0], args[1])
			w.answer("start", neg, within(func(ctx context.Context) error { return w.node.Start(ctx, c.sandbox.message(), c.message(), true) }))
		},
		"place": func(w *world, neg bool, args []string) { // the cgroup and the first process of a container, without an event
			w.check("place POD CONTAINER [empty]", neg, args)
			c := w.mustContainer(args[0], args[1])
			if w.place(c); len(args) > 2 {
				w.kernel.Replace(c.cgroup, "cgroup.events", "populated 0\nfrozen 0\n")
			} else {
				w.kernel.Populate(c.cgroup)
			}
		},
	}
}

// ends are the commands that end, remove and update containers and pods.
func ends() map[string]command {
	return map[string]command{
		"report-exit": func(w *world, neg bool, args []string) { // a process of the container outlives its first one
			w.check("report-exit POD CONTAINER", neg, args)
			c := w.mustContainer(args[0], args[1])
			w.node.Stopped(c.sandbox.id, c.id)
		},
		"exit": func(w *world, neg bool, args []string) {
			w.check("exit POD CONTAINER...", neg, args)
			for _, name := range args[1:] {
				w.exit(w.mustContainer(args[0], name))
			}
		},
		"remove": func(w *world, neg bool, args []string) {
			w.check("remove POD CONTAINER...", neg, args)
			for _, name := range args[1:] {
				w.remove(w.mustContainer(args[0], name))
			}
		},
		"exit-oldest": func(w *world, neg bool, args []string) { // of its name
			w.check("exit-oldest POD CONTAINER", neg, args)
			w.exit(w.mustPod(args[0]).oldestNamed(args[1]))
		},
		"remove-oldest": func(w *world, neg bool, args []string) {
			w.check("remove-oldest POD CONTAINER", neg, args)
			w.remove(w.mustPod(args[0]).oldestNamed(args[1]))
		},
		"remove-sandbox": func(w *world, neg bool, args []string) { // the oldest one
			w.check("remove-sandbox POD", neg, args)
			w.removeSandbox(w.mustPod(args[0]).sandboxes[0])
		},
		"remove-pod": func(w *world, neg bool, args []string) {
			w.check("remove-pod POD", neg, args)
			p := w.mustPod(args[0])
			for _, sb := range slices.Clone(p.sandboxes) {
				w.removeSandbox(sb)
			}
			w.kernel.Remove(p.cgroup)
			delete(w.pods, p.namespace+"/"+p.name)
			w.order = slices.DeleteFunc(w.order, func(name string) bool { return w.pods[name] == nil })
		},
		"update": func(w *world, neg bool, args []string) { // of the container's resources, such as a resize in place
			w.check("update POD CONTAINER", neg, args)
			c := w.mustContainer(args[0], args[1])
			w.writeSpec(c)
			if w.connected {
				w.node.Updated(c.sandbox.id)
			}
		},
	}
}
