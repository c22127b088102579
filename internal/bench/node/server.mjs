// The smallest MCP server on Node, which mcp-stdio's start is compared with.
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

serveStdio(() => {
	const server = new McpServer({ name: 'node', version: '1.0.0' });
	server.registerTool('hello', { description: 'Says hello.' }, async () => ({ content: [{ type: 'text', text: 'hello' }] }));
	return server;
});
