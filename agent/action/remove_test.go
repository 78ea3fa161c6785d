// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestRemoveLogDeletesOnlyEntries(t *testing.T) {
	client := fake.NewSimpleClientset()
	if err := RemoveLog(t.Context(), client.CoreV1().ConfigMaps(agentNamespace)); err != nil {
		t.Fatal(err)
	}
	if n := len(client.Actions()); n != 1 {
		t.Fatalf("%d requests, want one for all entries", n)
	}
	// The fake deletes no collections.
	removal, ok := client.Actions()[0].(clienttesting.DeleteCollectionAction)
	if !ok || removal.GetNamespace() != agentNamespace {
		t.Fatalf("%v, want the deletion of a collection in the agent's namespace", client.Actions()[0])
	}
	of := removal.GetListRestrictions().Labels
	if !of.Matches(labels.Set{labelLog: logActions}) || of.Matches(labels.Set{labelLog: "of-something-else"}) || of.Matches(labels.Set{}) {
		t.Errorf("what is removed is %q", of)
	}
}
