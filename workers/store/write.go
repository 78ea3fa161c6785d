// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
)

// Put stores an object. It is there, whole, when there is no error, and may be when there is
// one.
func (s *Store) Put(ctx context.Context, account, key, mediaType string, content []byte) error {
	if err := owned(account, key); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	within, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	options := minio.PutObjectOptions{ContentType: mediaType, DisableMultipart: true}
	// A body of signed parts ends with one that is empty. versitygw 1.8 does not read it where
	// there is no other, and takes it for the next request of the connection.
	options.DisableContentSha256 = len(content) == 0
	_, err := s.client.Client.PutObject(within, s.config.Bucket, key, bytes.NewReader(content), int64(len(content)), options)
	if err != nil {
		return fmt.Errorf("%s: %w", key, classify(ctx, err))
	}
	return nil
}

// Read returns an object of at most limit bytes.
func (s *Store) Read(ctx context.Context, account, key string, limit int64) ([]byte, error) {
	if err := owned(account, key); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	within, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	body, _, _, err := s.client.GetObject(within, s.config.Bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, classify(ctx, err))
	}
	defer body.Close()
	content, err := io.ReadAll(io.LimitReader(body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", key, classify(ctx, err))
	case int64(len(content)) > limit:
		return nil, fmt.Errorf("%s: %w: it has more than %d bytes", key, ErrTooLarge, limit)
	}
	return content, nil
}

// Names returns what there is directly below a folder: objects by their names, and folders
// by theirs with a slash. They are sorted.
func (s *Store) Names(ctx context.Context, account, folder string) ([]string, error) {
	return s.list(ctx, account, folder, false)
}

// Delete removes objects. One that is not there is none too many.
func (s *Store) Delete(ctx context.Context, account string, keys ...string) error {
	within, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	for _, key := range keys {
		if err := owned(account, key); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if err := s.client.RemoveObject(within, s.config.Bucket, key, minio.RemoveObjectOptions{}); err != nil {
			return fmt.Errorf("%s: %w", key, classify(ctx, err))
		}
	}
	return nil
}

// DeleteFolder removes all objects below a folder.
func (s *Store) DeleteFolder(ctx context.Context, account, folder string) error {
	names, err := s.list(ctx, account, folder, true)
	if err != nil {
		return err
	}
	keys := make([]string, 0, len(names))
	for _, name := range names {
		keys = append(keys, folder+"/"+name)
	}
	return s.Delete(ctx, account, keys...)
}

func (s *Store) list(ctx context.Context, account, folder string, recursive bool) ([]string, error) {
	if err := owned(account, folder); err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	within, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	var names []string
	options := minio.ListObjectsOptions{Prefix: folder + "/", Recursive: recursive}
	for object := range s.client.ListObjectsIter(within, s.config.Bucket, options) {
		if object.Err != nil {
			return nil, fmt.Errorf("%s: %w", folder, classify(ctx, object.Err))
		}
		if name := strings.TrimPrefix(object.Key, folder+"/"); name != "" {
			names = append(names, name)
		}
	}
	// The client ends a listing without an error when its context does.
	if err := within.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", folder, classify(ctx, err))
	}
	slices.Sort(names)
	return names, nil
}
