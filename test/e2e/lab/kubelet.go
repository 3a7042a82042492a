package lab

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"testing"
)

// Forever is how many seconds a container of a manifest sleeps that does not end.
const Forever = "100000"

// podList is the part of a v1.PodList that is looked at.
type podList struct {
	Items []struct {
		Metadata struct{ Name string }
		Status   struct {
			ContainerStatuses []struct {
				Name  string
				State struct {
					Waiting struct{ Reason, Message string }
				}
			}
		}
	}
}

// LogUnits logs the end of what units log.
func LogUnits(t *testing.T, units ...string) {
	t.Helper()
	for _, name := range units {
		out, _ := exec.Command("journalctl", "-u", name, "--no-pager", "-n", "60").CombinedOutput()
		t.Logf("end of the log of %s:\n%s", name, out)
	}
}

// StopUnits stops units and removes the pods that are left of them.
func StopUnits(units ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*Deadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", append([]string{"stop"}, units...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("stop %s: %w: %s", units, err, out)
	}
	removing, cancel := context.WithTimeout(context.Background(), 2*Deadline)
	defer cancel()
	return errors.Join(err, Node.CRI.RemovePods(removing))
}

// Waiting returns the kubelet's reason why a container of a pod waits.
func Waiting(ctx context.Context, pod, container string) (reason, message string, err error) {
	client := http.Client{
		Timeout: Deadline,
		// The kubelet's certificate is its own.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:10250/pods", http.NoBody)
	if err != nil {
		return "", "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	var list podList
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return "", "", fmt.Errorf("%s from %s: %w", response.Status, request.URL, err)
	}
	for _, item := range list.Items {
		for _, s := range item.Status.ContainerStatuses {
			if item.Metadata.Name == pod && s.Name == container {
				return s.State.Waiting.Reason, s.State.Waiting.Message, nil
			}
		}
	}
	return "", "", fmt.Errorf("the kubelet has no status of container %s of pod %s", container, pod)
}
