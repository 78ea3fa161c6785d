// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/spokelet/spokelet/agent/join"
	"github.com/spokelet/spokelet/tunnel"
)

// join opens the agent's identity, and joins the hub if that was never done.
func (a *agent) join(ctx context.Context) error {
	uid, err := join.KubeSystemUID(ctx, a.kube.CoreV1())
	if err != nil {
		return err
	}
	cfg, logger := a.opts.Config, a.opts.Logger.WithName("join")
	identity, err := join.Open(ctx, join.Config{
		Secrets:   a.kube.CoreV1(),
		Namespace: cfg.Namespace,
		Cluster:   cfg.Cluster,
		Logger:    logger,
	})
	if err != nil {
		return err
	}
	a.uid, a.identity = uid, identity
	a.health.watch(identity)
	request := join.Request{
		Dial: func(ctx context.Context) (join.Conn, error) {
			return tunnel.EnrollConn(ctx, cfg.Hub.Address, cfg.Hub.CAFingerprint)
		},
		Token:         join.TokenFile(cfg.Hub.TokenFile),
		CAFingerprint: cfg.Hub.CAFingerprint,
		KubeSystemUID: uid,
		Logger:        logger,
	}
	a.parts = append(a.parts, identity.Start, func(ctx context.Context) error {
		return identity.Keep(ctx, request, a.tunnel.Wake)
	})
	// What was applied is kept right without the hub too: only a cluster that has
	// never joined waits here.
	if identity.Joined() {
		return nil
	}
	return identity.Join(ctx, request)
}
