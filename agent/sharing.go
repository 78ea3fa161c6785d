// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/spokelet/spokelet/agent/sharing"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/secretstore"
)

// eventSource is where events say that they come from.
const eventSource = "spokelet-agent"

// addShared shares objects with the hub, as the account that the chart gives rights to.
func (a *agent) addShared(ctx context.Context, t *term) (end func(), err error) {
	guarded := a.guarded()
	kube, err := kubernetes.NewForConfig(guarded)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	records, err := secretstore.Open(ctx, secretstore.Config{
		Name:    sharing.StoreName,
		Secrets: kube.CoreV1().Secrets(a.opts.Config.Namespace), Logger: a.opts.Logger.WithName("shared"),
	})
	if err != nil {
		return nil, err
	}
	events, end, err := a.newEvents(guarded)
	if err != nil {
		return nil, err
	}
	quota := a.opts.Config.Shared.Quota
	engine, err := a.newShared(guarded, sharing.Config{
		Records: records, Events: events, Quota: wire.SharedSize{Objects: quota.Objects, Bytes: quota.Bytes.Value()},
		KubeSystemUID: a.uid, Logger: a.opts.Logger.WithName("shared"),
	})
	if err != nil {
		end()
		return nil, err
	}
	t.sources = append(t.sources, engine.Sources()...)
	t.mirrors = append(t.mirrors, engine.Mirrors()...)
	t.engines = append(t.engines, records.Run, engine.Run)
	return end, nil
}

func (a *agent) newShared(guarded *rest.Config, config sharing.Config) (*sharing.Engine, error) {
	var err error
	if config.Objects, err = dynamic.NewForConfig(a.asShared(guarded)); err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	if config.Definitions, err = dynamic.NewForConfig(a.opts.Client); err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	return sharing.New(config)
}

// asShared is the account that shares objects.
func (a *agent) asShared(client *rest.Config) *rest.Config {
	client = rest.CopyConfig(client)
	client.Impersonate = rest.ImpersonationConfig{UserName: a.opts.Config.SharedAccount()}
	client.WarningHandler = rest.NoWarnings{}
	return client
}

// recorder is sharing.Events.
type recorder struct{ record.EventRecorder }

// Event warns of an object.
func (r recorder) Event(regarding *corev1.ObjectReference, reason, note string) {
	r.EventRecorder.Event(regarding, corev1.EventTypeWarning, reason, note)
}

// newEvents records events as the account that shares objects, until end is called.
func (a *agent) newEvents(guarded *rest.Config) (events sharing.Events, end func(), err error) {
	kube, err := kubernetes.NewForConfig(a.asShared(guarded))
	if err != nil {
		return nil, nil, fmt.Errorf("client of the cluster: %w", err)
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
	return recorder{broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: eventSource})}, broadcaster.Shutdown, nil
}
