// Package csi is a CSI driver whose volumes are logical volumes of LVM. It has only the
// services of a node: there is no controller, so claims are bound to existing volumes, and
// volumes are not staged. It does not depend on the plugin under test.
package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// kubeletDir is where the kubelet looks for drivers.
const kubeletDir = "/var/lib/kubelet"

// Driver serves the kubelet from its Start to its Stop.
type Driver struct {
	name, group string
	servers     []*grpc.Server
	sockets     []string

	mu     sync.Mutex
	inline map[string]bool // volumes that were made for a pod, and go with it
}

// Start starts a driver with this name, whose volumes are those of a volume group. The
// handle of a volume is the name of its logical volume.
func Start(name, group string) (*Driver, error) {
	d := &Driver{name: name, group: group, inline: make(map[string]bool)}
	endpoint := filepath.Join(kubeletDir, "plugins", name, "csi.sock")
	err := d.serve(endpoint, func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, identity{name: name})
		csi.RegisterNodeServer(s, nodeServer{driver: d})
	})
	if err == nil {
		err = d.serve(filepath.Join(kubeletDir, "plugins_registry", name+".sock"), func(s *grpc.Server) {
			registration.RegisterRegistrationServer(s, registrar{name: name, endpoint: endpoint})
		})
	}
	if err != nil {
		d.Stop()
		return nil, fmt.Errorf("CSI driver %s: %w", name, err)
	}
	return d, nil
}

func (d *Driver) serve(socket string, register func(*grpc.Server)) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	// Of a run that was interrupted.
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	register(s)
	d.servers, d.sockets = append(d.servers, s), append(d.sockets, socket)
	go func() { _ = s.Serve(l) }() // it ends with Stop
	return nil
}

// Stop unregisters the driver from the kubelet. Published volumes stay mounted.
func (d *Driver) Stop() {
	for i, s := range d.servers {
		s.Stop()
		_ = os.Remove(d.sockets[i]) // the server has done it already
	}
}

// registrar registers the driver with the kubelet.
type registrar struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus: where the kubelet did not take the driver no volume is
// mounted, and its log says why.
func (registrar) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

type identity struct {
	csi.UnimplementedIdentityServer
	name string
}

func (i identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.name, VendorVersion: "1"}, nil
}

func (identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}
