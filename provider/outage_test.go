// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// outage fails the requests of a fake API server between begin and end.
type outage struct{ on atomic.Bool }

// withOutage must come before the client is used.
func withOutage(client *fake.Clientset) *outage {
	o := &outage{}
	client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !o.on.Load() {
			return false, nil, nil
		}
		return true, nil, apierrors.NewServiceUnavailable("etcd is down")
	})
	return o
}

func (o *outage) begin() { o.on.Store(true) }
func (o *outage) end()   { o.on.Store(false) }
