// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStoreHandlerReplacesAtOnceAndThenChanges(t *testing.T) {
	var got []string
	notef := func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) }
	s := &StoreHandler[string, string]{
		Read: func(obj metav1.Object) (string, string, bool) {
			return obj.GetName(), obj.GetResourceVersion(), obj.GetName() != "other"
		},
		Replace: func(all map[string]string) { notef("replace %v", all) },
		Set:     func(name, version string) { notef("set %s %s", name, version) },
		Delete:  func(name, version string) { notef("delete %s %s", name, version) },
	}
	s.StartSync()
	s.HandleEvent(object("half", "1"), false)
	s.StartSync() // the first start has failed
	s.HandleEvent(object("a", "2"), false)
	s.HandleEvent(object("b", "2"), false)
	s.HandleEvent(object("b", "3"), true)
	s.HandleEvent(object("other", "3"), false)
	s.FinishSync("3")
	s.HandleEvent(object("a", "4"), false)
	s.HandleEvent(object("other", "5"), true)
	s.HandleEvent(object("a", "6"), true)
	want := []string{"replace map[a:2]", "set a 4", "delete a 6"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
