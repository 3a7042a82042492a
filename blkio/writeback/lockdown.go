package writeback

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// lockdownFile has the modes of lockdown, the one in force in brackets. Containers
// seldom have it mounted.
const lockdownFile = "/sys/kernel/security/lockdown"

// notLoaded returns the reason why the kernel takes no program. Under lockdown, the kernel's own error names
// only a helper that the program may not call.
//
// Source: bpf_base_func_proto in kernel/bpf/helpers.c; LOCKDOWN_BPF_READ_KERNEL belongs to the mode
// "confidentiality" (include/linux/security.h).
func notLoaded(err error, lockdownFile string) error {
	modes, _ := os.ReadFile(lockdownFile) // without, the kernel's own words
	if strings.Contains(string(modes), "[confidentiality]") {
		return fmt.Errorf("%w: the lockdown mode is confidentiality: %w", ErrUnavailable, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		// The error's own text is about RLIMIT_MEMLOCK, which is no limit for BPF since
		// Linux 5.11 (cilium/ebpf v0.21, map.go).
		return fmt.Errorf("%w: requires root, or CAP_BPF and CAP_PERFMON: %w", ErrUnavailable, fs.ErrPermission)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
