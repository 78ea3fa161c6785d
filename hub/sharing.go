// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"

	"github.com/spokelet/spokelet/hub/sharing"
)

// addSharing shares objects of custom resources with clusters.
func (h *hub) addSharing(context.Context) error {
	controller, err := sharing.New(sharing.Config{
		Sync:      h.sync,
		Client:    h.mgr.GetClient(),
		Live:      h.mgr.GetAPIReader(),
		Dynamic:   h.dyn,
		Informers: h.mgr.GetCache(),
		Sessions:  sessionSource{h.tunnel.Sessions()},
		Memory:    h.shared,
		Writes:    h.writes,
		Events:    h.mgr.GetEventRecorder("spokelet-hub"),
		Logger:    h.opts.Logger.WithName("shared"),
	})
	if err != nil {
		return err
	}
	return h.mgr.Add(controller)
}
