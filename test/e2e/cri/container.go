package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Container is a container that was created.
type Container struct {
	ID     string
	Name   string
	Cgroup string // path below CgroupRoot
	Log    string // path of its log

	client *Client
}

// Start starts the container's program.
func (k *Container) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := k.client.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: k.ID})
	return err
}

// stopTimeout bounds the end of a container. containerd 2.4.2 gives the handling of an exit 10 s, and if that fails,
// as it does when the removal of the root waits for the disk, it tries again after 1, 2, 4, … seconds
// (handleEventTimeout, backOffInitDuration). The sixth attempt ends after 91 s, the eighth after 207 s.
const stopTimeout = 4 * time.Minute

// Stop kills the container's program.
func (k *Container) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	err := whileBusy(ctx, func() error {
		_, err := k.client.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: k.ID})
		return err
	})
	if err != nil {
		return fmt.Errorf("stop container %s %s: %w\nthe runtime's last lines of it:\n%sblocked threads:\n%s",
			k.Name, k.ID, err, k.journal(), blocked())
	}
	return nil
}

// journal returns what the runtime logged last of the container.
func (k *Container) journal() string {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "journalctl", "-u", "containerd", "-u", "crio", "-g", k.ID, "-n", "20", "-o", "cat").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s%v\n", out, err)
	}
	return string(out)
}

// blocked returns a line for each thread of the node that waits without a signal being able to end that: its
// name and where in the kernel it is.
func blocked() string {
	var b strings.Builder
	stats, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/stat") // fails for a bad pattern only
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		name, rest, ok := strings.Cut(string(stat), ") ")
		if err != nil || !ok || !strings.HasPrefix(rest, "D") { // a thread that has ended
			continue
		}
		stack, err := os.ReadFile(filepath.Join(filepath.Dir(file), "stack"))
		fmt.Fprintln(&b, name+")", strings.Fields(string(stack)), err)
	}
	return b.String()
}

// Remove stops and removes the container.
func (k *Container) Remove(ctx context.Context) error {
	stop := k.Stop(ctx)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := k.client.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: k.ID})
	if err := errors.Join(stop, err); err != nil {
		return fmt.Errorf("remove container %s: %w", k.ID, err)
	}
	return nil
}

// Exec runs a program in the container and returns what it prints.
func (k *Container) Exec(ctx context.Context, timeout time.Duration, cmd ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+callTimeout)
	defer cancel()
	answer, err := k.client.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{
		ContainerId: k.ID, Cmd: cmd, Timeout: int64(timeout.Seconds()),
	})
	if err != nil {
		return "", fmt.Errorf("exec %v: %w", cmd, err)
	}
	if answer.ExitCode != 0 {
		return "", fmt.Errorf("exec %v: exit status %d: %s", cmd, answer.ExitCode, answer.Stderr)
	}
	return string(answer.Stdout), nil
}

// Resources are the values that an in-place resize changes; 0 leaves a value as it is.
type Resources struct {
	CPUQuota int64 // microseconds of CPU in each 100 ms
	Memory   int64 // bytes
}

// Update changes the container's resources in place.
func (k *Container) Update(ctx context.Context, r Resources) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := k.client.runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: k.ID,
		Linux: &runtimeapi.LinuxContainerResources{
			CpuPeriod: 100_000, CpuQuota: r.CPUQuota, MemoryLimitInBytes: r.Memory,
		},
	})
	if err != nil {
		return fmt.Errorf("update container %s: %w", k.ID, err)
	}
	return nil
}

// Exited reports whether the program has ended, and with which status.
func (k *Container) Exited(ctx context.Context) (bool, int32, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := k.client.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: k.ID})
	if err != nil {
		return false, 0, fmt.Errorf("status of container %s: %w", k.ID, err)
	}
	return answer.Status.State == runtimeapi.ContainerState_CONTAINER_EXITED, answer.Status.ExitCode, nil
}

// Wait returns the output of a program that ends, or an error when it has not
// by the end of ctx or has failed.
func (k *Container) Wait(ctx context.Context) (string, error) {
	for {
		done, status, err := k.Exited(ctx)
		if err != nil {
			return "", err
		}
		if done && status != 0 {
			return "", fmt.Errorf("container %s: exit status %d: %s", k.Name, status, k.output())
		}
		if done {
			return k.output(), nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("container %s: still running: %w", k.Name, context.Cause(ctx))
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (k *Container) output() string {
	data, err := os.ReadFile(k.Log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(logText(string(data)))
}
