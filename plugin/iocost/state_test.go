package iocost

import (
	"fmt"
	"testing"
)

// TestInspect verifies that Inspect makes the same decisions as Apply, and writes nothing.
func TestInspect(t *testing.T) {
	full := Setup{Disk: vda, Enabled: true, Model: modelA, QOS: qosA, ModelOrigin: FromCalibration, QOSOrigin: FromPolicy}
	guessed := Setup{Disk: vda, Enabled: true, ModelOrigin: FromKernel, QOSOrigin: FromKernel}
	other := "254:0 ctrl=user model=linear " + modelB.String() + "\n"
	for _, tt := range []struct {
		name, model, qos string
		setup            Setup
		want             string
	}{
		{"of the setup", "", "", full, "model calibration " + modelA.String() + ", qos policy " + qosA.String() + ", enabled true, works false"},
		{"of another program", other, "254:0 enable=1 ctrl=user " + qosA.String() + "\n", full, "model foreign " + modelB.String() + ", qos foreign " + qosA.String() + ", enabled true, works true"},
		{"disabled by another program", "", "254:0 enable=0 ctrl=user " + qosA.String() + "\n", full, "model calibration " + modelA.String() + ", qos foreign " + qosA.String() + ", enabled false, works false"},
		{"of the kernel", "254:0 ctrl=auto model=linear " + modelB.String() + "\n", "254:0 enable=0 ctrl=auto " + qosA.String() + "\n", guessed, "model kernel " + modelB.String() + ", qos kernel " + qosA.String() + ", enabled true, works false"},
		{"never set up", "", "", guessed, "model kernel <nil>, qos kernel <nil>, enabled true, works false"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKernel(t)
			k.put("io.cost.model", tt.model)
			k.put("io.cost.qos", tt.qos)
			states, err := Inspect(k.tree, []Setup{tt.setup})
			if err != nil || len(k.writes) > 0 {
				t.Fatal(err, k.writes)
			}
			model, from := states[0].CostModel()
			qos, qosFrom := states[0].CostQOS()
			if got := fmt.Sprintf("model %s %v, qos %s %v, enabled %t, works %t", from, model, qosFrom, qos, states[0].Enabled, states[0].Works); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
