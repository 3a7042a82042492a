package node_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nri-blkio/nri-blkio/plugin/node"
)

// creations are the commands of the kubelet that make pods, and containers that have not started. "! create" expects a rejection.
func creations() map[string]command {
	return map[string]command{
		"pod POD [KEY=VALUE]...": func(w *world, _ bool, args []string) {
			w.newPod(args[0], args[1:])
		},
		"same-cgroup POD OTHER [KEY=VALUE]...": func(w *world, _ bool, args []string) {
			w.newPod(args[0], args[2:]).cgroup = w.mustPod(args[1]).cgroup
		},
		"reported POD KEY=VALUE...": func(w *world, _ bool, args []string) { // the annotations that the runtime reports of the next sandbox
			p := w.mustPod(args[0])
			p.annotations = pairs(p.annotations, args[1:], annotationKey)
		},
		"! create POD CONTAINER [VALUE] [--mount SOURCE:DESTINATION[:OPTIONS]]...": func(w *world, neg bool, args []string) {
			w.answer("create", neg, w.create(w.newContainer(args)))
		},
		"begin-create POD CONTAINER [VALUE] [--mount SOURCE:DESTINATION[:OPTIONS]]...": func(w *world, _ bool, args []string) { // of which the answer comes later, with "answer"
			c, answer := w.newContainer(args), make(chan error, 1)
			w.pending = answer
			go func() { answer <- w.create(c) }()
		},
		"begin-start POD CONTAINER": func(w *world, _ bool, args []string) {
			c, answer := w.mustContainer(args[0], args[1]), make(chan error, 1)
			w.pending = answer
			go func() { answer <- w.start(c) }()
		},
		"! answer": func(w *world, neg bool, args []string) {
			w.answer("the call", neg, <-w.pending)
		},
		"! create-silent POD CONTAINER [VALUE]": func(w *world, neg bool, args []string) { // the runtime reports no end of one that is rejected
			w.isSilent = true
			w.answer("create", neg, w.create(w.newContainer(args)))
			w.isSilent = false
		},
		"sandbox POD [beside]": func(w *world, _ bool, args []string) { // beside: the runtime lists the former one still
			p := w.mustPod(args[0])
			p.newSandbox()
			if len(args) > 1 {
				p.sandboxes[len(p.sandboxes)-2].ready = true
			}
		},
	}
}

// starts are the commands that start containers. "!" expects a rejection.
func starts() map[string]command {
	return map[string]command{
		"! start POD CONTAINER": func(w *world, neg bool, args []string) {
			w.answer("start", neg, w.start(w.mustContainer(args[0], args[1])))
		},
		"! run POD CONTAINER [VALUE] [--mount SOURCE:DESTINATION[:OPTIONS]]...": func(w *world, neg bool, args []string) {
			c := w.newContainer(args)
			err := w.create(c)
			if err == nil {
				err = w.start(c)
			}
			w.answer("run", neg, err)
		},
		"run-many COUNT POD CONTAINER [VALUE] [--mount SOURCE:DESTINATION[:OPTIONS]]...": func(w *world, neg bool, args []string) { // as run, of pods POD-1, POD-2, ...
			count, err := strconv.Atoi(args[0])
			w.ts.Check(err)
			for i := range count {
				c := w.newContainer(append([]string{fmt.Sprint(args[1], "-", i+1)}, args[2:]...))
				w.answer("run", neg, errors.Join(w.create(c), w.start(c)))
			}
		},
		"! start-unseen POD CONTAINER [VALUE] [--mount SOURCE:DESTINATION[:OPTIONS]]...": func(w *world, neg bool, args []string) { // no plugin listened when it was created
			c := w.newContainer(args)
			c.sandbox.containers = append(c.sandbox.containers, c)
			w.answer("start", neg, w.start(c))
		},
		"! start-unheard POD CONTAINER [VALUE]": func(w *world, neg bool, args []string) { // the runtime does not get the answer, and the container runs
			c := w.newContainer(args)
			c.sandbox.containers = append(c.sandbox.containers, c)
			w.isSilent = true
			w.answer("start", neg, w.start(c))
			w.isSilent = false
		},
		"! start-unplaced POD CONTAINER": func(w *world, neg bool, args []string) { // restored from a checkpoint: its cgroup comes later
			c := w.newContainer(args)
			c.sandbox.containers = append(c.sandbox.containers, c)
			w.reachable()
			c.state = node.Running
			if !w.node.Enter(c.sandbox.message(), c.message(), node.Running) {
				return
			}
			w.answer("start", neg, within(func(ctx context.Context) error { return w.node.Start(ctx, c.sandbox.message(), c.message(), true) }))
		},
		"! repeat-start POD CONTAINER": func(w *world, neg bool, args []string) { // the event alone
			c := w.mustContainer(args[0], args[1])
			w.answer("start", neg, within(func(ctx context.Context) error { return w.node.Start(ctx, c.sandbox.message(), c.message(), true) }))
		},
		"place POD CONTAINER [empty]": func(w *world, _ bool, args []string) { // the cgroup and the first process of a container, without an event
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
		"report-exit POD CONTAINER": func(w *world, _ bool, args []string) { // a process of the container outlives its first one
			c := w.mustContainer(args[0], args[1])
			w.node.Stopped(c.sandbox.id, c.id)
		},
		"exit POD CONTAINER...": func(w *world, _ bool, args []string) {
			for _, name := range args[1:] {
				w.exit(w.mustContainer(args[0], name))
			}
		},
		"remove POD CONTAINER...": func(w *world, _ bool, args []string) {
			for _, name := range args[1:] {
				w.remove(w.mustContainer(args[0], name))
			}
		},
		"exit-oldest POD CONTAINER": func(w *world, _ bool, args []string) { // of its name
			w.exit(w.mustPod(args[0]).oldestNamed(args[1]))
		},
		"remove-oldest POD CONTAINER": func(w *world, _ bool, args []string) {
			w.remove(w.mustPod(args[0]).oldestNamed(args[1]))
		},
		"remove-sandbox POD": func(w *world, _ bool, args []string) { // the oldest one
			w.removeSandbox(w.mustPod(args[0]).sandboxes[0])
		},
		"remove-pod POD": func(w *world, _ bool, args []string) { w.removePod(w.mustPod(args[0])) },
		"update POD CONTAINER": func(w *world, _ bool, args []string) { // of the container's resources, such as a resize in place
			c := w.mustContainer(args[0], args[1])
			w.writeSpec(c)
			if w.connected {
				w.node.Updated(c.sandbox.id)
			}
		},
	}
}
