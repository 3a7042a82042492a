package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
)

// completionTime is how long a shell waits for words.
const completionTime = 500 * time.Millisecond

// completed returns a function that has a shell complete words of the records on the node, and of more. args are the arguments before the word.
func (a *app) completed(words func(r *record.Record, args []string) []string, more ...func() []*record.Record) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		found := make(chan []string, 1)
		go func() { found <- a.recordedWords(words, args, more...) }()
		select {
		case out := <-found:
			return out, cobra.ShellCompDirectiveNoFileComp
		case <-time.After(completionTime):
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// recordedWords returns the words of all records that can be read, each once. It leaves out what a terminal could not show.
func (a *app) recordedWords(words func(r *record.Record, args []string) []string, args []string, more ...func() []*record.Record) (out []string) {
	tree, err := a.cgroups()
	if err != nil {
		return nil
	}
	defer tree.Close()
	records, _ := inspect.Records(tree, inspect.Filter{}) // those that can be read
	for _, r := range records {
		out = append(out, words(r.Record, args)...)
	}
	for _, records := range more {
		for _, r := range records() {
			out = append(out, words(r, args)...)
		}
	}
	out = slices.DeleteFunc(out, func(word string) bool { return word == "" || terminal.Escape(word) != word })
	slices.Sort(out)
	return slices.Compact(out)
}

// running returns the names of all pods that the runtime has, as records have them. Without an answer there are none.
func (a *app) running() []*record.Record {
	a.opts.runtime.HostRoot = a.opts.hostRoot
	ctx, cancel := context.WithTimeout(context.Background(), completionTime/2) // those with records are shown anyway
	defer cancel()
	pods, _ := a.opts.runtime.Pods(ctx)
	return recordsOf(pods)
}

func recordedPod(r *record.Record, _ []string) []string {
	return []string{inspect.Filter{Namespace: r.Namespace, Name: r.Pod}.String()}
}

func recordedDisks(r *record.Record, _ []string) []string {
	return slices.Collect(maps.Values(r.Disks))
}

// recordsOf returns records with the names of pods and of their containers.
func recordsOf(pods []runtimeconfig.Pod) (out []*record.Record) {
	for _, p := range pods {
		out = append(out, &record.Record{Namespace: p.Namespace, Pod: p.Name})
		for _, container := range p.Containers {
			out = append(out, &record.Record{Namespace: p.Namespace, Pod: p.Name, Container: container})
		}
	}
	return out
}

// recordedTarget completes a pod, and after it a container of that pod.
func recordedTarget(r *record.Record, args []string) []string {
	switch pod := recordedPod(r, nil); {
	case len(args) == 0:
		return pod
	case len(args) == 1 && (args[0] == pod[0] || args[0] == r.Pod):
		return []string{r.Container}
	}
	return nil
}
