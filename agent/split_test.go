// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestAGroupThatComesBackIsNewsThoughItIsAsItWas(t *testing.T) {
	g := &groupSource{agent: &agent{}, source: resource.NewSource(wire.NodeGroupKind), appeared: map[string]int64{}}
	both := map[string][]byte{"gpu": []byte("1"), "std": []byte("2")}
	g.PublishGroups(both)
	gpu, _ := g.source.Ref("gpu")
	std, _ := g.source.Ref("std")
	g.PublishGroups(map[string][]byte{"std": []byte("2")})
	if diff := cmp.Diff([]string{"std"}, g.source.Keys()); diff != "" {
		t.Errorf("published when one has gone (-want +got):\n%s", diff)
	}
	g.PublishGroups(both)
	if again, _ := g.source.Ref("gpu"); again == gpu || again.Hash != gpu.Hash {
		t.Errorf("a group that came back: %+v, before %+v", again, gpu)
	}
	if still, _ := g.source.Ref("std"); still != std {
		t.Errorf("a group that stayed: %+v, before %+v", still, std)
	}
}
