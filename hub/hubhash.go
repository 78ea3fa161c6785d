// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/spokelet/spokelet/internal/workconvert"
)

// errInvalidHubHash is the error of a page whose hub hash is none. A new one would orphan every
// anchor in the spokes, so that it is for people to say what it was.
var errInvalidHubHash = errors.New("not a SHA-256 in hex")

var validHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// resolveHubHash finds the hub hash. It is that of the URL at the first start, and
// stays when the URL changes. The page that keeps it is written before any work
// is sent.
func (h *hub) resolveHubHash(ctx context.Context) error {
	url := h.opts.Config.APIServerURL
	if url == "" {
		url = h.opts.Client.Host
	}
	var err error
	h.hash, err = resolveHubHash(ctx, h.kube.CoreV1().ConfigMaps(h.opts.Config.Namespace), url, h.opts.Logger)
	return err
}

func resolveHubHash(ctx context.Context, pages typedcorev1.ConfigMapInterface, url string, log logr.Logger) (string, error) {
	now := workconvert.HubHash(url)
	page, err := pages.Get(ctx, joinConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return now, nil
	}
	if err != nil {
		return "", fmt.Errorf("configmap %s: cannot get: %w", joinConfigMap, err)
	}
	kept, found := page.Data[keyHubHash]
	if !found {
		return now, nil
	}
	if !validHash.MatchString(kept) {
		return "", fmt.Errorf("configmap %s: %s %.128q: %w", joinConfigMap, keyHubHash, kept, errInvalidHubHash)
	}
	if kept != now {
		log.Info("hub hash stays what it was at the first start, although the URL of the API server is another", "url", url, "hubHash", kept)
	}
	return kept, nil
}
