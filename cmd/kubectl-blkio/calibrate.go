package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
)

const calibrateLong = `Measure a disk of a node for weights.

It uses the disk fully for up to a minute, so it asks for --yes. The pods of the plugin have no
disks. So it creates a privileged pod on the node, in the namespace of the plugin and with its
image, and deletes it at the end. All other arguments are those of nri-blkio calibrate:
--write-dir and --save are about the node.`

// pluginPod is what is read of the plugin's pod on a node.
type pluginPod struct {
	Spec struct {
		Containers                    []struct{ Image, ImagePullPolicy string }
		ImagePullSecrets, Tolerations json.RawMessage
	}
}

// calibrate runs the command in a privileged pod that it creates on --node. None of the plugin's own pods can open a disk.
func (a *app) calibrate(ctx context.Context, c nodeCommand, args []string) (err error) {
	switch {
	case a.node == "":
		return usage("%s: no node (write --node NODE)", c.name)
	case len(args) == 0:
		return usage("%s: no disk (kubectl blkio devices --node %s lists them)", c.name, a.node)
	case !a.yes:
		return usage("%s: it creates a privileged pod on node %s, and uses the disk fully for up to a minute (add --yes)", c.name, a.node)
	}
	data, err := a.part(ctx, c, a.node, "json")
	if err != nil {
		return err
	}
	var list struct{ Items []pluginPod }
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("read the pods of the plugin: %w", err)
	}
	if len(list.Items) == 0 || len(list.Items[0].Spec.Containers) == 0 {
		return a.noPart(c, a.node)
	}
	name := "nri-blkio-calibrate-" + strings.ToLower(rand.Text()[:8])
	input, err := json.Marshal(calibratePod(name, a.node, &list.Items[0]))
	if err != nil {
		return err
	}
	// Also after a failure: an interrupt ends kubectl, and not what the API server does.
	defer func() {
		removeErr := a.remove(ctx, name)
		if err == nil {
			err = removeErr
		} else if removeErr != nil {
			terminal.Notes(a.stderr, "kubectl blkio", removeErr.Error())
		}
	}()
	if err := a.run(ctx, bytes.NewReader(input), io.Discard, "create", "--namespace="+a.plugin, "--filename=-"); err != nil {
		return explained(ctx, err, "create a privileged pod in namespace %s: this needs the right to create pods and pods/exec there, "+
			"and the level privileged of Pod Security (without them, run nri-blkio calibrate on the node itself)", a.plugin)
	}
	if err := a.run(ctx, nil, io.Discard, "wait", "--namespace="+a.plugin, "--for=condition=Ready", "--timeout=2m", "pod/"+name); err != nil {
		state, _ := a.get(ctx, "pod/"+name, "--namespace="+a.plugin, "--output=jsonpath={.status.phase} {.status.message}{.status.containerStatuses[*].state.*.message}")
		return explained(ctx, err, "start pod %s on node %s: %s", name, a.node, bytes.TrimSpace(state))
	}
	return a.exec(ctx, a.plugin, "pod/"+name, nil, append([]string{"/nri-blkio", c.name}, args...)...)
}

// remove deletes a pod, also after an interrupt. What runs in it ends within a second.
func (a *app) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := a.run(ctx, nil, io.Discard, "delete", "--namespace="+a.plugin, "--wait=false", "--ignore-not-found", "pod/"+name); err != nil {
		return explained(ctx, err, "pod %s in namespace %s was not deleted: do it by hand (it ends after ten minutes)", name, a.plugin)
	}
	return nil
}

// explained returns what a failure of kubectl means, which has said itself what has failed.
func explained(ctx context.Context, err error, format string, args ...any) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if _, ok := errors.AsType[*exitError](err); ok {
		return fmt.Errorf(format, args...)
	}
	return err
}

// calibratePod returns the manifest of a pod that has all files of a node below /host, with the image of the plugin. It waits for an
// input that never comes, and ends after ten minutes.
func calibratePod(name, node string, plugin *pluginPod) any {
	type object = map[string]any
	of := plugin.Spec.Containers[0]
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "labels": object{"app.kubernetes.io/name": "nri-blkio-calibrate"}},
		"spec": object{
			"nodeName": node, "restartPolicy": "Never", "activeDeadlineSeconds": 600, "terminationGracePeriodSeconds": 1,
			"automountServiceAccountToken": false, "enableServiceLinks": false, "hostNetwork": true,
			"tolerations": plugin.Spec.Tolerations, "imagePullSecrets": plugin.Spec.ImagePullSecrets,
			"containers": []object{{
				"name": "calibrate", "image": of.Image, "imagePullPolicy": of.ImagePullPolicy,
				"args": []string{"check", "--offline", "--file=-"}, "stdin": true,
				"env":             []object{{"name": "NRI_BLKIO_HOST_ROOT", "value": "/host"}},
				"securityContext": object{"privileged": true, "runAsUser": 0, "runAsGroup": 0},
				"volumeMounts":    []object{{"name": "host", "mountPath": "/host", "mountPropagation": "HostToContainer"}},
			}},
			"volumes": []object{{"name": "host", "hostPath": object{"path": "/", "type": "Directory"}}},
		},
	}
}
