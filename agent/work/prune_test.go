// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/record"
)

// FuzzOwnershipOf checks that nothing is deleted that was not applied for the anchor,
// or that was there before.
func FuzzOwnershipOf(f *testing.F) {
	f.Add("u", "u", "anchor", "anchor", false)
	f.Add("u", "", "anchor", "other", true)
	f.Add("u", "v", "", "", false)
	f.Fuzz(func(t *testing.T, live, recorded, name, owner string, deleting bool) {
		obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: types.UID(live)}}
		if owner != "" {
			obj.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner)}}
		}
		if deleting {
			now := metav1.Now()
			obj.DeletionTimestamp = &now
		}
		applied := recorded != "" && recorded == live || name != "" && owner == name
		e := &Engine{inventory: inventory.New(nil)}
		for _, before := range []bool{false, true} {
			got := e.ownershipOf(Multicluster(), obj, record.Object{UID: types.UID(recorded), IsAdopted: before}, &record.Anchor{UID: types.UID(name)})
			if (got != ownershipForeign) != applied {
				t.Errorf("verdict %d of uid %q, recorded %q, anchor %q, owner %q", got, live, recorded, name, owner)
			}
			if got == ownedByWork && deleting {
				t.Error("an object that is going is deleted again")
			}
			if got == ownedByWork && (before || live != recorded) {
				t.Error("an object is deleted that we did not make")
			}
		}
	})
}
