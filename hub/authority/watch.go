// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/internal/watcher"
)

// Start watches the Secret until ctx ends, so that a rotation needs no restart.
// One object is watched, by name; no other Secret is ever held in memory.
func (a *Authority) Start(ctx context.Context) error {
	log := a.config.Logger.WithValues("namespace", a.config.Namespace, "secret", a.config.SecretName)
	watcher.WatchSecret(ctx, a.config.Secrets.Secrets(a.config.Namespace), a.config.SecretName,
		func(secret *corev1.Secret) {
			if err := a.replace(secret.Data); err != nil {
				log.Error(err, "cannot use the CA secret; the hub keeps the CA that it has")
			}
		},
		func() {
			log.Error(nil, "the CA secret was deleted; the hub keeps its copy and cannot start again without the secret")
		})
	return nil
}

// NeedLeaderElection is false: every replica signs.
func (*Authority) NeedLeaderElection() bool { return false }
