// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"context"
	"strings"

	"github.com/spokelet/spokelet/internal/impersonation"
	"github.com/spokelet/spokelet/workers/tail"
)

// credentialID is what API servers tell of a token beside its user.
const credentialID = "authentication.kubernetes.io/credential-id"

// createTail opens a tail. Its URL is on the host that the client has asked.
func (a *API) createTail(ctx context.Context, c *call) (any, error) {
	if err := a.config.Deployer.Exists(ctx, c.account, c.script); err != nil {
		return nil, err
	}
	raw, err := c.readBody()
	if err != nil {
		return nil, err
	}
	filters, err := tail.ParseFilters(raw)
	if err != nil {
		return nil, newAPIError(400, codeInvalid, err.Error())
	}
	t, err := a.config.Tails.Create(c.tailScript(), c.tailHolder(), filters)
	if err != nil {
		return nil, err
	}
	return map[string]string{"id": t.ID, "url": "wss://" + c.Host + t.Path, "expires_at": formatTime(t.ExpiresAt)}, nil
}

func (a *API) deleteTail(_ context.Context, c *call) (any, error) {
	return nil, a.config.Tails.Delete(c.tailScript(), c.PathValue("id"))
}

// tailHolder is who asks. The API server names the token, where it has an id.
func (c *call) tailHolder() tail.Holder {
	return tail.Holder{User: impersonation.Holder(c.user.Username), Token: strings.Join(c.user.Extra[credentialID], ",")}
}

func (c *call) tailScript() tail.Script {
	return tail.Script{Account: c.account.ID, Namespace: c.account.Namespace, Name: c.script}
}
