package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Disk returns the device number of a whole disk, "vdb" -> "254:16".
func Disk(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join("/sys/block", name, "dev"))
	if err != nil {
		return "", fmt.Errorf("number of disk %s: %w", name, err)
	}
	return strings.TrimSpace(string(data)), nil
}
