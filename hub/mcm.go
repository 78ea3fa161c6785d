// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/metadata"

	"github.com/spokelet/spokelet/hub/fanout"
	"github.com/spokelet/spokelet/hub/mcm"
	"github.com/spokelet/spokelet/internal/rbacwatch"
	"github.com/spokelet/spokelet/tunnel"
)

// addMCM serves views and actions, if it is recorded who asks for them.
func (h *hub) addMCM(context.Context) error {
	if !*h.opts.Config.Admission.Enabled {
		h.opts.Logger.Info("views and actions are not served: admission is not enabled")
		return nil
	}
	meta, err := metadata.NewForConfig(h.opts.Client)
	if err != nil {
		return fmt.Errorf("hub client: %w", err)
	}
	reviews := rbacwatch.NewRechecker(meta, h.opts.Logger.WithName("rights"))
	access := h.kube.AuthorizationV1().SubjectAccessReviews()
	controller, err := mcm.New(mcm.Config{
		Sync:           h.sync,
		Client:         h.mgr.GetClient(),
		Live:           h.mgr.GetAPIReader(),
		Informers:      h.mgr.GetCache(),
		Access:         access,
		Rights:         reviews,
		Authors:        h.requesters,
		Sessions:       sessionSource{h.tunnel.Sessions()},
		MaxResultBytes: h.opts.Config.MCM.MaxResultBytes,
		ShowSecrets:    h.opts.Config.MCM.ShowSecrets,
		Writes:         h.writes,
		Events:         h.mgr.GetEventRecorder("spokelet-hub"),
		Logger:         h.opts.Logger.WithName("mcm"),
	})
	if err != nil {
		return err
	}
	sets, err := fanout.New(fanout.Config{
		Client: h.mgr.GetClient(), Live: h.mgr.GetAPIReader(),
		Access: access, Rights: reviews, Authors: h.requesters, Writes: h.writes,
		Logger: h.opts.Logger.WithName("fanout"),
	})
	if err != nil {
		return err
	}
	return errors.Join(h.mgr.Add(reviews), h.mgr.Add(controller), sets.SetupWithManager(h.mgr))
}

// sessionSource is mcm.Sessions.
type sessionSource struct{ sessions *tunnel.Sessions }

func (c sessionSource) Connected(cluster string) bool {
	_, err := c.sessions.Get(context.Background(), cluster)
	return err == nil
}

func (c sessionSource) Subscribe(f func(cluster string, connected bool)) (cancel func()) {
	return c.sessions.Subscribe(func(e tunnel.Event) { f(e.Cluster, e.Session != nil) })
}
