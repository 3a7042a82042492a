package inventory

import (
	"path"
	"strings"
)

// tokenVolume begins the name of the projected volume that the ServiceAccount
// admission plugin adds to each pod, with the service account's token. A tenant
// may give a projected volume of its own that name: those are in memory as well.
//
// Source: ServiceAccountVolumeName in Kubernetes' plugin/pkg/admission/serviceaccount.
const tokenVolume = "kube-api-access-"

// injected recognizes the mounts that the runtime and the kubelet add to each container of a pod. A mount's source
// on the host decides, not its path in the container: a tenant's volume at /etc/hosts is a volume.
type injected struct{ token, termination, sandbox, overlay part }

// part is a part of a path, around an ID.
type part struct{ before, id, after string }

func injectedInto(pod *Pod) injected {
	return injected{
		token:       part{"/pods/", pod.UID, "/volumes/kubernetes.io~projected/" + tokenVolume},
		termination: part{"/pods/", pod.UID, "/containers/"},                         // the termination log
		sandbox:     part{"/io.containerd.grpc.v1.cri/sandboxes/", pod.Sandbox, "/"}, // hostname, resolv.conf, hosts, shm
		overlay:     part{"/overlay-containers/", pod.Sandbox, "/"},                  // the same of CRI-O
	}
}

func (in *injected) has(m *Mount) bool {
	if !m.IsBind() {
		return true
	}
	src := path.Clean(m.Source)
	token, _ := in.token.cut(src)
	return token != "" && !strings.Contains(token, "/") || in.sandbox.isIn(src) || in.overlay.isIn(src) || in.termination.isIn(src) ||
		in.isHosts(src)
}

// isHosts reports whether a path is that of the kubelet's file for /etc/hosts.
func (in *injected) isHosts(path string) bool {
	dir, isHosts := strings.CutSuffix(path, "/etc-hosts")
	dir, isOfPod := strings.CutSuffix(dir, in.token.id)
	return isHosts && isOfPod && strings.HasSuffix(dir, in.token.before)
}

func (p *part) isIn(path string) bool {
	_, found := p.cut(path)
	return found
}

// cut returns what is behind the part in a path.
func (p *part) cut(path string) (after string, found bool) {
	for {
		i := strings.Index(path, p.before)
		if i < 0 {
			return "", false
		}
		if rest, isID := strings.CutPrefix(path[i+len(p.before):], p.id); isID {
			if rest, found = strings.CutPrefix(rest, p.after); found {
				return rest, true
			}
		}
		path = path[i+1:]
	}
}
