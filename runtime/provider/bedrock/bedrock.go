package bedrock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/schemas"
	"github.com/aws/smithy-go/transport/http/protocol/restjson1"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// Option configures [New].
type Option func(*settings)

type settings struct {
	aws              aws.Config
	region, endpoint string
	client           bedrockruntime.HTTPClient
	info             provider.Info
}

// WithAWSConfig sets the configuration of the AWS SDK, with credentials. It is
// required.
func WithAWSConfig(cfg aws.Config) Option { return func(s *settings) { s.aws = cfg } }

// WithRegion sets the region, such as "us-east-1". The default is that of the
// configuration.
func WithRegion(region string) Option { return func(s *settings) { s.region = region } }

// WithBaseEndpoint sets the URL of the Bedrock runtime, for endpoints in a VPC and
// gateways. The default is what the SDK knows for the region.
func WithBaseEndpoint(url string) Option { return func(s *settings) { s.endpoint = url } }

// WithHTTPClient sets the client. The default is that of the configuration, else
// that of the SDK. Neither that nor an [http.Client] without a CheckRedirect follows
// redirections.
func WithHTTPClient(client bedrockruntime.HTTPClient) Option {
	return func(s *settings) { s.client = client }
}

// WithProviderID sets the ID of the provider in the log. The default is "bedrock".
func WithProviderID(id string) Option { return func(s *settings) { s.info.ID = id } }

// WithAPIVersion sets the version of the API in the log. The default is the one
// that the SDK speaks, 2023-09-30; this does not change it.
func WithAPIVersion(version string) Option { return func(s *settings) { s.info.APIVersion = version } }

// client implements [provider.Capabler].
type client struct {
	info    provider.Info
	runtime *bedrockruntime.Client
}

// New returns the provider. It fails without credentials or a region, or with an
// endpoint that is not a URL. That the credentials are good is seen when they are
// used.
func New(opts ...Option) (provider.Provider, error) {
	s := settings{info: provider.Info{ID: "bedrock", APIVersion: bedrockruntime.ServiceAPIVersion}}
	for _, opt := range opts {
		opt(&s)
	}
	c := &client{s.info, bedrockruntime.NewFromConfig(s.aws, s.apply)}
	if err := s.check(c.runtime.Options()); err != nil {
		return nil, fmt.Errorf("bedrock: %w", err)
	}
	return c, nil
}

// apply has the last word about the options of the SDK.
func (s *settings) apply(o *bedrockruntime.Options) {
	o.Region = cmp.Or(s.region, o.Region)
	if s.endpoint != "" {
		o.BaseEndpoint = &s.endpoint
	}
	if s.client != nil {
		o.HTTPClient = s.client
	}
	o.HTTPClient = through(o.HTTPClient)
	o.Retryer = aws.NopRetryer{}
}

func (s *settings) check(o bedrockruntime.Options) error {
	if o.Credentials == nil && o.BearerAuthTokenProvider == nil {
		return errors.New("no credentials, see WithAWSConfig")
	}
	if o.Region == "" {
		return errors.New("no region, see WithRegion")
	}
	if o.BaseEndpoint != nil {
		if err := converse.CheckURL("the endpoint", *o.BaseEndpoint); err != nil {
			return err
		}
	}
	if s.info.ID == "" || s.info.APIVersion == "" {
		return errors.New("the provider id and the API version cannot be empty")
	}
	return nil
}

// through returns a client that sends with c.
func through(c bedrockruntime.HTTPClient) *http.Client {
	return converse.Client(&http.Client{Transport: transport{stationary(c)}})
}

// stationary returns c, if it can be told, as a client that does not follow
// redirections: that of the SDK follows some.
func stationary(c bedrockruntime.HTTPClient) bedrockruntime.HTTPClient {
	switch c := c.(type) {
	case *http.Client:
		return converse.Stationary(c)
	case *awshttp.BuildableClient:
		return converse.Stationary(&http.Client{Transport: c.GetTransport(), Timeout: c.GetTimeout()})
	}
	return c
}

type transport struct{ client bedrockruntime.HTTPClient }

// RoundTrip implements [http.RoundTripper]. The SDK closes the body of a request
// when the response begins, at which time net/http may not have seen its end yet.
// WriteTo of that body then fails, so that net/http drops the connection under the
// response. Read says that the body has ended, so there is only Read.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		req = req.WithContext(req.Context())
		req.Body = struct{ io.ReadCloser }{req.Body}
	}
	return t.client.Do(req)
}

// Info implements [provider.Provider].
func (c *client) Info() provider.Info { return c.info }

// Capabilities implements [provider.Capabler].
func (c *client) Capabilities() provider.Capabilities {
	return provider.Capabilities{Tools: true, ToolChoice: true, Reasoning: true, StopSequences: true, RequestID: true}
}

// Stream implements [provider.Provider].
func (c *client) Stream(ctx context.Context, req *provider.Request) (provider.EventStream, error) {
	input, err := translate(req)
	if err != nil {
		return nil, fmt.Errorf("bedrock: %w", err)
	}
	stream, err := converse.Begin(ctx, func(ctx context.Context) (converse.Source, error) { return c.send(ctx, input) }, explain)
	if err != nil {
		return nil, err
	}
	return stream, nil
}

func (c *client) send(ctx context.Context, input *bedrockruntime.ConverseStreamInput) (converse.Source, error) {
	out, err := c.runtime.ConverseStream(ctx, input, ownProtocol)
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		response.Response.Body.Close() // the SDK leaves it open
	}
	if err != nil {
		return nil, err
	}
	id, _ := middleware.GetRequestIDMetadata(out.ResultMetadata)
	return &source{stream: out.GetStream(), requestID: id}, nil
}

// ownProtocol gives a request a decoder of its own. That of the client keeps its
// buffer between events, and streams that run at the same time would share it.
func ownProtocol(o *bedrockruntime.Options) {
	o.Protocol = restjson1.New(schemas.AmazonBedrockFrontendService)
}
