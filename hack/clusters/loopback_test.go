// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"net"
	"testing"
)

// kernel gives the lowest free port, as soon as it is free again.
type kernel map[int]bool

func (k kernel) listen() (net.Listener, error) {
	port := 1
	for k[port] {
		port++
	}
	k[port] = true
	return &listening{kernel: k, port: port}, nil
}

type listening struct {
	net.Listener

	kernel kernel
	port   int
}

func (l *listening) Addr() net.Addr { return &net.TCPAddr{Port: l.port} }

func (l *listening) Close() error {
	delete(l.kernel, l.port)
	return nil
}

func TestNoTwoClustersGetOnePort(t *testing.T) {
	set, err := attach(Config{StateDir: t.TempDir()}, state{Name: "x", Provider: ControlPlane, Clusters: clusterNames(2)})
	if err != nil {
		t.Fatal(err)
	}
	driver, free := &loopback{set: set}, kernel{}
	if err := driver.reservePorts(free.listen); err != nil {
		t.Fatal(err)
	}
	owners := map[int]string{}
	for _, c := range set.clusters {
		p, err := driver.plane(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range []int{p.ports.API, p.ports.Etcd, p.ports.EtcdPeer, p.ports.Controllers} {
			if owner, taken := owners[port]; taken {
				t.Errorf("port %d is of %s and of %s", port, owner, c.Name)
			}
			owners[port] = c.Name
		}
	}
	if len(free) != 0 {
		t.Errorf("the servers cannot listen: %v are still held", free)
	}
}
