// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/testscale"
)

// manyWorks is three works that bring the same objects, on a real API server.
type manyWorks struct {
	*testCluster
	hub       *testHub
	manifests []string
	// dialect of the first, and of the others; strategy is that of ManifestWorks.
	dialects [3]string
	strategy workv1.UpdateStrategyType
}

func (c *manyWorks) work(i int) string { return c.name(fmt.Sprintf("w%d", i)) }

func (c *manyWorks) create(i int) {
	if c.dialects[i] == wire.DialectMulticluster {
		c.hub.want(c.work(i), 1, c.manifests...)
		return
	}
	var w wire.Work
	w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "*", Name: "*"},
		UpdateStrategy:     &workv1.UpdateStrategy{Type: c.strategy},
	}}
	c.hub.ask(c.work(i), 1, w, c.manifests...)
}

func (c *manyWorks) delete(i int) {
	if c.dialects[i] == wire.DialectMulticluster {
		c.hub.want(c.work(i), 2)
		return
	}
	c.hub.ask(c.work(i), 2, wire.Work{Deleting: true})
}

func (c *manyWorks) applied(i int) {
	if c.dialects[i] == wire.DialectMulticluster {
		c.hub.is(c.testCluster, c.work(i), 1, conditionApplied, metav1.ConditionTrue)
		return
	}
	c.hub.says(c.testCluster, c.work(i), 1, conditionApplied, metav1.ConditionTrue)
}

func (c *manyWorks) gone(i int) {
	c.eventually(c.work(i)+" is finalized", func() bool { return c.hub.status(c.work(i)).Finalized || c.hub.said(c.work(i)).Finalized })
}

// owners counts the objects by how many own them, and returns their UIDs.
func (c *manyWorks) owners() (count map[int]int, uids map[string]types.UID) {
	c.t.Helper()
	list, err := c.kube.CoreV1().ConfigMaps(c.namespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	count, uids = map[int]int{}, map[string]types.UID{}
	for _, cm := range list.Items {
		if cm.Name != "kube-root-ca.crt" {
			count[len(cm.OwnerReferences)]++
			uids[cm.Name] = cm.UID
		}
	}
	return count, uids
}

// Each write carries the owners known when it began, and each removal is decided on what
// was read: without care the last one withdraws a reference, deletes what another work
// wants, or leaves it to a work that is going, too.
func TestManyWorksShareObjectsAndLeaveNothing(t *testing.T) {
	t.Parallel()
	mc, mw := wire.DialectMulticluster, wire.DialectManifestWork
	tests := map[string]struct {
		reason   string
		dialects [3]string
		strategy workv1.UpdateStrategyType
	}{
		"Works":                       {reason: "all apply as one manager", dialects: [3]string{mc, mc, mc}},
		"ManifestWorks, Update":       {reason: "each merges into what it read", dialects: [3]string{mw, mw, mw}, strategy: workv1.UpdateStrategyTypeUpdate},
		"ManifestWorks, apply":        {reason: "all apply as one manager", dialects: [3]string{mw, mw, mw}, strategy: workv1.UpdateStrategyTypeServerSideApply},
		"ManifestWorks, CreateOnly":   {reason: "references alone are written", dialects: [3]string{mw, mw, mw}, strategy: workv1.UpdateStrategyTypeCreateOnly},
		"a Work beside ManifestWorks": {reason: "both APIs share objects", dialects: [3]string{mc, mw, mw}, strategy: workv1.UpdateStrategyTypeServerSideApply},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &manyWorks{testCluster: newCluster(t), hub: newHub(t), dialects: tc.dialects, strategy: tc.strategy}
			n := testscale.Of(40, 200)
			for i := range n {
				c.manifests = append(c.manifests, c.configMap(fmt.Sprintf("o%d", i), "k", "v"))
			}
			c.startForOCM(c.hub)
			all := []int{0, 1, 2}
			each(all, c.create)
			each(all, c.applied)
			count, made := c.owners()
			if !maps.Equal(count, map[int]int{3: n}) {
				t.Errorf("%s: of %d objects in three works that say Applied, by number of owners: %v", tc.reason, n, count)
			}
			c.delete(0)
			c.gone(0)
			count, kept := c.owners()
			if !maps.Equal(count, map[int]int{2: n}) || !maps.Equal(made, kept) {
				t.Errorf("%s: after one work has gone, by number of owners: %v; all are as they were made: %t", tc.reason, count, maps.Equal(made, kept))
			}
			each(all[1:], c.delete)
			each(all[1:], c.gone)
			if count, left := c.owners(); len(count) > 0 {
				t.Errorf("%s: all works have gone, and these are left, by number of owners: %v, such as %v", tc.reason, count, slices.Sorted(maps.Keys(left))[:1])
			}
		})
	}
}

func each(list []int, do func(int)) {
	for _, i := range list {
		do(i)
	}
}
