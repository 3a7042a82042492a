package writeback

import (
	"fmt"
	"os"
	"strings"
)

// lockdownFile has the modes of lockdown, the one in force in brackets. Containers
// seldom have it mounted.
const lockdownFile = "/sys/kernel/security/lockdown"

// notLoaded is why the kernel takes no program. What it says itself where it is locked
// down names a helper that a program may not call, which leads nobody there.
//
// Source: bpf_base_func_proto in kernel/bpf/helpers.c; LOCKDOWN_BPF_READ_KERNEL is of
// the mode "confidentiality" (include/linux/security.h).
func notLoaded(err error, lockdownFile string) error {
	modes, _ := os.ReadFile(lockdownFile) // without, the kernel's own words
	if strings.Contains(string(modes), "[confidentiality]") {
		return fmt.Errorf("%w: its lockdown mode is confidentiality: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
