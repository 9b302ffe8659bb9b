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

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// client implements [provider.Capabler].
type client struct {
	converse.Config
	runtime *bedrockruntime.Client
}

// New returns the provider. It takes the region and an access key from the variables that
// AWS's own programs use, and fails without them, or with a base URL that is none. That the
// key is good is seen when it is used. The version of the API is what the SDK speaks.
func New(c converse.Config) (provider.Provider, error) {
	c.ID, c.APIVersion = cmp.Or(c.ID, "bedrock"), bedrockruntime.ServiceAPIVersion
	if c.Getenv == nil {
		c.Getenv = func(string) string { return "" }
	}
	key := aws.Credentials{
		AccessKeyID: c.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: c.Getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken: c.Getenv("AWS_SESSION_TOKEN"), // empty for a long-term key
	}
	region := cmp.Or(c.Region, c.Getenv("AWS_REGION"), c.Getenv("AWS_DEFAULT_REGION"))
	switch {
	case key.AccessKeyID == "" || key.SecretAccessKey == "":
		return nil, errors.New("bedrock needs the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, " +
			"which `aws configure export-credentials --format env` prints for a profile")
	case region == "":
		return nil, errors.New("bedrock: no region: set the environment variable AWS_REGION, or the key region of the agent's file")
	}
	config := aws.Config{
		Region: region, Retryer: func() aws.Retryer { return aws.NopRetryer{} },
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return key, nil }),
		HTTPClient:  converse.Client(&http.Client{Transport: transport{converse.Stationary(c.HTTP)}}),
	}
	if c.BaseURL != "" {
		if err := converse.CheckURL("the base URL", c.BaseURL); err != nil {
			return nil, fmt.Errorf("bedrock: %w", err)
		}
		config.BaseEndpoint = &c.BaseURL
	}
	return &client{c, bedrockruntime.NewFromConfig(config)}, nil
}

type transport struct{ client *http.Client }

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
