package storage

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// CostSolution has the values of io.cost for a disk in udev's hardware database.
type CostSolution struct {
	Name  string // "naive", "isolation", "bandwidth", ...
	Model blkio.CostModel
	QOS   blkio.CostQOS
}

// The solution that systemd takes if /etc/udev/iocost.conf names no other one (parse_config in
// src/udev/iocost/iocost.c).
const defaultSolution = "naive"

// maxUdev bounds a file of udev's database, in bytes.
const maxUdev = 64 << 10

// ReadCostSolution reads the solution of io.cost that udev's database has for a device; nil if
// it has none. udev is the directory /run/udev/data.
func ReadCostSolution(udev fs.FS, dev blkio.Dev) (*CostSolution, error) {
	data, err := readUdev(udev, dev)
	if err != nil || data == nil {
		return nil, err
	}
	s, err := parseCostSolution(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("parse udev's database, b%s: %w", dev, err)
	}
	return s, nil
}

// readUdev reads a device's file of udev's database; nil if there is none.
func readUdev(udev fs.FS, dev blkio.Dev) ([]byte, error) {
	f, err := udev.Open("b" + dev.String())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read udev's database: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxUdev+1))
	if err != nil {
		return nil, fmt.Errorf("read udev's database: %w", err)
	}
	if len(data) > maxUdev { // without its end, a value could be another one
		return nil, fmt.Errorf("parse udev's database, b%s: larger than %d bytes", dev, maxUdev)
	}
	return data, nil
}

// ReadLinks returns the symlinks that udev makes for a device, as absolute paths; nil if its database has no such
// device. udev is the directory /run/udev/data.
func ReadLinks(udev fs.FS, dev blkio.Dev) ([]string, error) {
	data, err := readUdev(udev, dev)
	if err != nil {
		return nil, err
	}
	return parseLinks(string(data)), nil
}

// parseLinks parses the links in a device's file of udev's database:
//
//	S:disk/by-id/nvme-Samsung_SSD_980_S64DNX0R
//	S:disk/by-path/pci-0000:01:00.0-nvme-1
//	I:1234567
//
// Source: device_update_db in systemd's src/libsystemd/sd-device/device-private.c. Other lines are of no use here.
func parseLinks(data string) (out []string) {
	for line := range strings.Lines(data) {
		if link, isLink := strings.CutPrefix(strings.TrimRight(line, "\n"), "S:"); isLink && link != "" {
			out = append(out, "/dev/"+link)
		}
	}
	return out
}

// parseCostSolution parses a device's file of udev's database:
//
//	I:1234567
//	E:ID_MODEL=Samsung_SSD_980
//	E:IOCOST_SOLUTIONS=isolation isolated-bandwidth bandwidth naive
//	(1)
//	E:IOCOST_MODEL_ISOLATED_BANDWIDTH=rbps=2706339840 rseqiops=89698 rrandiops=110036 wbps=1063126016 wseqiops=135560 wrandiops=130734
//	(2)
//	E:IOCOST_QOS_ISOLATED_BANDWIDTH=rpct=0.00 rlat=9000 wpct=0.00 wlat=94410 min=100.00 max=100.00
//	(3)
//
//	(1) "naive" is taken, or else the first one
//	(2) as in io.cost.model
//	(3) as in io.cost.qos; a solution has both
//
// Source: query_named_solution in systemd's src/udev/iocost/iocost.c; hwdb.d/90-iocost.hwdb.
func parseCostSolution(r io.Reader) (*CostSolution, error) {
	properties := map[string]string{}
	scan := bufio.NewScanner(r)
	for scan.Scan() {
		if text, isProperty := strings.CutPrefix(scan.Text(), "E:"); isProperty {
			name, value, _ := strings.Cut(text, "=")
			properties[name] = value
		}
	}
	if err := scan.Err(); err != nil {
		return nil, err
	}
	names := strings.Fields(properties["IOCOST_SOLUTIONS"])
	if len(names) == 0 {
		return nil, nil
	}
	s := &CostSolution{Name: names[0]}
	if slices.Contains(names, defaultSolution) {
		s.Name = defaultSolution
	}
	key := strings.ReplaceAll(strings.ToUpper(s.Name), "-", "_")
	model, hasModel := properties["IOCOST_MODEL_"+key]
	qos, hasQOS := properties["IOCOST_QOS_"+key]
	if !hasModel || !hasQOS {
		return nil, nil // systemd ignores it as well
	}
	var err error
	s.Model, s.QOS, err = blkio.ParseCost(model, qos)
	return s, err
}
