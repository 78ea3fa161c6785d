// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/hub/registration/token"
)

var errNoToken = errors.New("cluster has no join token")

// tokens keeps the records of join tokens in Secrets of the hub's namespace. Each look is
// a GET: a stale copy would accept a token twice. holders has a copy, and grants nothing
// by it.
type tokens struct {
	live      client.Reader
	writer    client.Writer
	namespace string
	now       func() time.Time
}

// check returns nil when the token is the cluster's and open to the key.
func (t *tokens) check(ctx context.Context, cluster string, presented token.Token, key token.Hash) error {
	_, _, err := t.load(ctx, cluster, presented, key)
	return err
}

// bind checks again and makes the token worthless to every other key. The write
// is under the resourceVersion that was read: of two keys one wins, and the
// other finds the token used.
func (t *tokens) bind(ctx context.Context, cluster string, presented token.Token, key token.Hash) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		secret, record, err := t.load(ctx, cluster, presented, key)
		if err != nil || record.BoundKey != nil {
			return err
		}
		record.BoundKey = &key
		secret.Data = record.Encode()
		return t.writer.Update(ctx, secret)
	})
}

func (t *tokens) load(ctx context.Context, cluster string, presented token.Token, user token.Hash) (*corev1.Secret, token.Record, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: t.namespace, Name: token.SecretName(cluster)}
	err := t.live.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return nil, token.Record{}, errNoToken
	}
	if err != nil {
		return nil, token.Record{}, fmt.Errorf("join token: %w", err)
	}
	if secret.Type != token.SecretType {
		return nil, token.Record{}, fmt.Errorf("secret %s: %w: type %q", key, token.ErrRecord, secret.Type)
	}
	record, err := token.Decode(secret.Data)
	if err != nil {
		return nil, token.Record{}, fmt.Errorf("secret %s: %w", key, err)
	}
	if err := record.Check(presented, user, t.now()); err != nil {
		return nil, token.Record{}, err
	}
	return secret, record, nil
}
