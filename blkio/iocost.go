package blkio

import (
	"fmt"
	"strings"
)

// ParseIOCostQOS parses io.cost.qos of the root cgroup. The result is true for the devices
// on which io.cost is enabled; io.weight has an effect on these only. On a device that is
// not listed io.cost is disabled.
//
//	8:16 enable=1 ctrl=auto rpct=95.00 rlat=75000 wpct=95.00 wlat=150000 min=50.00 max=150.00
//	(1)  (2)
//
//	(1) device number
//	(2) 1 if io.cost is enabled; the fields after it tune it
//
// Source: Documentation/admin-guide/cgroup-v2.rst, "io.cost.qos".
func ParseIOCostQOS(data string) (map[Dev]bool, error) {
	out := make(map[Dev]bool)
	err := eachDevLine("io.cost.qos", data, func(dev Dev, pairs string) error {
		for pair := range strings.FieldsSeq(pairs) {
			name, value, _ := strings.Cut(pair, "=")
			if name != "enable" {
				continue
			}
			if value != "0" && value != "1" {
				return fmt.Errorf("invalid enable %q: not 0 or 1", value)
			}
			out[dev] = value == "1"
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
