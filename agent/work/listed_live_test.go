// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// anchorChecker is a hub that looks into the spoke whenever it is told that a work is
// applied.
type anchorChecker struct {
	look func(key wire.WorkKey)
}

func (l anchorChecker) Put(r resource.Resource) error {
	s, err := wire.DecodeWorkStatus(r.Body)
	if err != nil {
		return err
	}
	key, err := wire.ParseWorkKey(r.Key)
	if err == nil && meta.IsStatusConditionTrue(s.Conditions, conditionApplied) {
		l.look(key)
	}
	return err
}

func (anchorChecker) Delete(string) {}
func (anchorChecker) Complete()     {}

func TestAnchorListPrecedesApplied(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	applied := make(chan string, 100)
	c.startForOCM(h, func(cfg *Config) {
		cfg.Reporter = anchorChecker{func(key wire.WorkKey) {
			a, object := c.applied(hubHashOne+"-"+key.Name), c.get(key.Name)
			if a == nil || object == nil || len(a.Status.AppliedResources) != 1 || a.Status.AppliedResources[0].UID != string(object.UID) {
				t.Errorf("%s is told to be applied, and its record lists %+v", key.Name, a)
			}
			applied <- key.Name
		}}
	})
	for i := range 10 { // one after the other
		name := c.name(fmt.Sprint("w", i))
		h.ask(name, 1, wire.Work{}, c.configMap(name))
		for <-applied != name { // events tell of the one before
		}
	}
	for i := range 5 { // a few at once
		name := c.name(fmt.Sprint("v", i))
		h.ask(name, 1, wire.Work{}, c.configMap(name))
	}
	for told := map[string]bool{}; len(told) < 5; {
		if name := <-applied; name[0] == 'v' {
			told[name] = true
		}
	}
}

func TestAnchorListsFollowBurst(t *testing.T) {
	t.Parallel()
	const works = 300
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	name := func(i int) string { return c.name(fmt.Sprint("w", i)) }
	for i := range works {
		h.ask(name(i), 1, wire.Work{}, c.configMap(name(i)))
	}
	began := time.Now()
	for i := range works {
		h.says(c, name(i), 1, "Applied", metav1.ConditionTrue)
	}
	burst := time.Since(began)
	next := 0 // before it all are listed
	listed := func() bool {
		for ; next < works; next++ {
			if a := c.applied(hubHashOne + "-" + name(next)); a == nil || len(a.Status.AppliedResources) != 1 {
				return false
			}
		}
		return true
	}
	atLeast := (works - record.RecordBurst) * time.Second / record.RecordRate // to list each before it is told of
	if listed() && burst < atLeast/2 {
		t.Error("the burst has waited for its lists")
	}
	began = time.Now()
	c.eventually("all are listed", listed)
	t.Logf("%d works were applied within %s, and listed %s later", works, burst, time.Since(began))
}

func TestAnchorListsObjectUntilDeleted(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	work := c.name("w")
	h.ask(work, 1, wire.Work{}, c.configMap("kept"), c.configMap("held"))
	h.says(c, work, 1, "Applied", metav1.ConditionTrue)
	c.patch("held", `{"metadata":{"finalizers":["example.com/held"]}}`)
	lists := func() (names []string) {
		for _, r := range c.applied(hubHashOne + "-" + work).Status.AppliedResources {
			names = append(names, r.Name)
		}
		return names
	}
	h.ask(work, 2, wire.Work{}, c.configMap("kept"), c.configMap("new"))
	h.says(c, work, 2, "Applied", metav1.ConditionTrue)
	c.eventually("it is being deleted", func() bool { return c.get("held").DeletionTimestamp != nil })
	h.ask(work, 3, wire.Work{}, c.configMap("kept"), c.configMap("new"))
	h.says(c, work, 3, "Applied", metav1.ConditionTrue)
	if got := fmt.Sprint(lists()); got != "[held kept new]" {
		t.Errorf("listed are %s, and held is still there", got)
	}
	c.patch("held", `{"metadata":{"finalizers":null}}`)
	c.eventually("it leaves the list", func() bool { return fmt.Sprint(lists()) == "[kept new]" })
}
